// A sheet to draw on, with mouse, finger or pen. What is drawn is black on white, 64 × 64 pixels.

const INSIDE = 320;
const STORED = 64;
const WIDTH = 18;

export class Pad {
  constructor(label, changed = () => {}) {
    this.canvas = document.createElement("canvas");
    this.canvas.width = this.canvas.height = INSIDE;
    this.canvas.className = "pad";
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", label);
    this.ink = this.canvas.getContext("2d");
    this.changed = changed;
    this.last = null;
    this.clear();
    this.canvas.addEventListener("pointerdown", (event) => this.down(event));
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) {
      this.canvas.addEventListener(end, () => { this.last = null; });
    }
  }

  clear() {
    this.ink.fillStyle = "#fff";
    this.ink.fillRect(0, 0, INSIDE, INSIDE);
    this.empty = true;
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * INSIDE, ((event.clientY - box.top) / box.height) * INSIDE];
  }

  down(event) {
    event.preventDefault();
    this.canvas.setPointerCapture(event.pointerId);
    this.last = this.at(event);
    this.line(this.last);
  }

  move(event) {
    if (!this.last) return;
    for (const each of event.getCoalescedEvents?.() || [event]) this.line(this.at(each));
  }

  line(to) {
    Object.assign(this.ink, { strokeStyle: "#111", lineWidth: WIDTH, lineCap: "round", lineJoin: "round" });
    this.ink.beginPath();
    this.ink.moveTo(...this.last);
    this.ink.lineTo(to[0] + 0.01, to[1]);
    this.ink.stroke();
    this.last = to;
    this.empty = false;
    this.changed();
  }

  picture() {
    return squared(this.canvas, INSIDE, INSIDE, STORED, "image/png");
  }
}

/** The middle square of a drawing or a video, as the bytes of a small picture. */
export function squared(source, width, height, side, type) {
  const small = document.createElement("canvas");
  small.width = small.height = side;
  const ink = small.getContext("2d");
  ink.imageSmoothingQuality = "high";
  const edge = Math.min(width, height);
  ink.drawImage(source, (width - edge) / 2, (height - edge) / 2, edge, edge, 0, 0, side, side);
  return new Promise((done) => small.toBlob(done, type, 0.92));
}
