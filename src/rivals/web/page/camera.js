// Square pictures from the camera.

import { squared } from "./pad.js";

const SIDE = 128;

export class Camera {
  constructor() {
    this.video = document.createElement("video");
    Object.assign(this.video, { muted: true, playsInline: true });
    this.video.setAttribute("aria-label", "What the camera sees");
    this.stream = null;
  }

  /** Start it; the message of an Error is for the user. */
  async start() {
    if (!navigator.mediaDevices?.getUserMedia) {
      throw new Error(
        "Browsers allow the camera only on the same machine or over https; take pictures with the camera of the device and add them as files.",
      );
    }
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" }, audio: false });
    } catch (error) {
      throw new Error(
        error.name === "NotAllowedError"
          ? "The camera was not allowed; allow it in the browser's settings for this page."
          : "No camera was found; connect one, or add pictures as files.",
      );
    }
    this.video.srcObject = this.stream;
    await this.video.play();
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
    return squared(this.video, this.video.videoWidth, this.video.videoHeight, SIDE, "image/jpeg");
  }
}
