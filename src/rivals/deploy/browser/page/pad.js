// A canvas to draw on with mouse, finger or pen.

const SIDE = 320; // pixels of the canvas

export class Pad {
  /** `detail` is the side of the model's pictures: a line has at least its pixel. */
  constructor(detail, changed) {
    this.canvas = document.createElement("canvas");
    this.canvas.width = this.canvas.height = SIDE;
    this.canvas.className = "pad";
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", "Drawing area; the answer follows");
    this.context = this.canvas.getContext("2d", { willReadFrequently: true });
    this.changed = changed;
    this.detail = detail;
    this.last = null;
    this.canvas.addEventListener("pointerdown", (event) => this.down(event));
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) this.canvas.addEventListener(end, () => { this.last = null; });
    this.clear(false);
  }

  clear(black) {
    this.black = black;
    this.context.fillStyle = black ? "#000" : "#fff";
    this.context.fillRect(0, 0, SIDE, SIDE);
    this.empty = true;
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
    const lineWidth = Math.max(this.black ? 28 : 18, (1.3 * SIDE) / this.detail); // data sets have thick white lines
    Object.assign(this.context, { strokeStyle: this.black ? "#fff" : "#111", lineWidth, lineCap: "round", lineJoin: "round" });
    this.context.beginPath();
    this.context.moveTo(...this.last);
    this.context.lineTo(to[0] + 0.01, to[1]);
    this.context.stroke();
    this.last = to;
    this.empty = false;
    this.changed();
  }
}
