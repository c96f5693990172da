// The camera as a source of square pictures.

import { squared } from "./pad.js";

const SIDE = 128;

export class Camera {
  constructor() {
    this.video = document.createElement("video");
    Object.assign(this.video, { muted: true, playsInline: true });
    this.video.setAttribute("aria-label", "What the camera sees");
    this.stream = null;
  }

  /** Start it; an Error has a sentence for the user. */
  async start() {
    if (!navigator.mediaDevices?.getUserMedia) {
      throw new Error(
        "A browser lends its camera only to pages on this machine or over https; take pictures with the device's own camera and add them as files.",
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
