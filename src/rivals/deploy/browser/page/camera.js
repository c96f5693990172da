// The camera: started on demand, the one at the back first; mirrored where it looks at its user.

export class Camera {
  constructor() {
    this.video = document.createElement("video");
    Object.assign(this.video, { muted: true, playsInline: true });
    this.video.setAttribute("aria-label", "What the camera sees");
    this.stream = null;
    this.facing = "environment";
  }

  /** Start it; the message of an Error is for the user. */
  async start() {
    if (!navigator.mediaDevices?.getUserMedia) {
      throw new Error("Browsers allow the camera only over https, or on the machine that serves the page. Take a picture with the camera app and choose it as a file.");
    }
    this.stop();
    const wanted = { facingMode: this.facing, width: { ideal: 640 }, height: { ideal: 480 } };
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ video: wanted, audio: false });
    } catch (error) {
      throw new Error(
        error.name === "NotAllowedError" ? "The camera was not allowed; allow it in the browser's settings for this page."
          : error.name === "NotReadableError" ? "The camera is used by another program; close that, then try again."
            : "No camera was found; connect one, or choose pictures as files.",
      );
    }
    const [track] = this.stream.getVideoTracks();
    this.video.classList.toggle("mirrored", track.getSettings().facingMode !== "environment");
    this.video.srcObject = this.stream;
    await this.video.play();
  }

  /** The other one: front or back. */
  async turn() {
    this.facing = this.facing === "environment" ? "user" : "environment";
    await this.start();
  }

  async several() {
    const devices = await navigator.mediaDevices.enumerateDevices();
    return devices.filter((each) => each.kind === "videoinput").length > 1;
  }

  stop() {
    for (const track of this.stream?.getTracks() || []) track.stop();
    this.stream = null;
    this.video.srcObject = null;
  }

  get ready() {
    return this.stream !== null && this.video.videoWidth > 0;
  }
}
