// A canvas to draw on with mouse, finger or pen: black on white, stored with 64 × 64 pixels.

const SIDE = 320; // pixels of the canvas
const STORED = 64; // pixels of the picture
const LINE_WIDTH = 18;

export class Pad {
  constructor(label, changed = () => {}) {
    this.canvas = document.createElement("canvas");
    this.canvas.width = this.canvas.height = SIDE;
    this.canvas.className = "pad";
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", label);
    this.context = this.canvas.getContext("2d");
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
    this.context.fillStyle = "#fff";
    this.context.fillRect(0, 0, SIDE, SIDE);
    this.empty = true;
  }

  /** What is drawn, for `restore`. */
  copy() {
    const kept = document.createElement("canvas");
    kept.width = kept.height = SIDE;
    kept.getContext("2d").drawImage(this.canvas, 0, 0);
    return kept;
  }

  restore(drawn) {
    this.context.drawImage(drawn, 0, 0);
    this.empty = false;
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * SIDE, ((event.clientY - box.top) / box.height) * SIDE];
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
    Object.assign(this.context, { strokeStyle: "#111", lineWidth: LINE_WIDTH, lineCap: "round", lineJoin: "round" });
    this.context.beginPath();
    this.context.moveTo(...this.last);
    this.context.lineTo(to[0] + 0.01, to[1]);
    this.context.stroke();
    this.last = to;
    this.empty = false;
    this.changed();
  }

  picture() {
    return squared(this.canvas, SIDE, SIDE, STORED, "image/png");
  }
}

/** The central square of a drawing or a video as a small picture file. */
export function squared(source, width, height, side, type) {
  const small = document.createElement("canvas");
  small.width = small.height = side;
  const context = small.getContext("2d");
  context.imageSmoothingQuality = "high";
  const edge = Math.min(width, height);
  context.drawImage(source, (width - edge) / 2, (height - edge) / 2, edge, edge, 0, 0, side, side);
  return new Promise((done) => small.toBlob(done, type, 0.92));
}
