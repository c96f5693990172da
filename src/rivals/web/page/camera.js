// Square pictures from the camera. The preview of a camera that looks at the user is mirrored, as
// people expect of a mirror; the pictures are not.

import { t } from "./language.js";
import { squared } from "./pad.js";

export const PICTURE_SIDE = 128;

export class Camera {
  constructor() {
    this.video = document.createElement("video");
    Object.assign(this.video, { muted: true, playsInline: true });
    this.video.setAttribute("aria-label", t("camera.sees"));
    this.stream = null;
    this.facing = "environment"; // that of a phone which looks away from the user
  }

  /** Start it; the message of an Error is for the user. */
  async start() {
    if (!navigator.mediaDevices?.getUserMedia) throw new Error(t("camera.insecure"));
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: this.facing }, audio: false });
    } catch (error) {
      throw new Error(t(error.name === "NotAllowedError" ? "camera.denied" : "camera.missing"));
    }
    // A camera that does not say where it looks is one of a desktop, and looks at the user.
    this.video.classList.toggle("mirrored", this.stream.getVideoTracks()[0].getSettings().facingMode !== "environment");
    this.video.srcObject = this.stream;
    await this.video.play();
  }

  /** Whether there is a camera to turn to. */
  async several() {
    const devices = await navigator.mediaDevices.enumerateDevices();
    return devices.filter((each) => each.kind === "videoinput").length > 1;
  }

  async turn() {
    this.stop();
    this.facing = this.facing === "user" ? "environment" : "user";
    await this.start();
  }

  stop() {
    for (const track of this.stream?.getTracks() || []) track.stop();
    this.stream = null;
    this.video.srcObject = null;
  }

  get ready() {
    return this.stream !== null && this.video.videoWidth > 0;
  }

  picture() {
    return squared(this.video, this.video.videoWidth, this.video.videoHeight, PICTURE_SIDE, "image/jpeg");
  }
}
