// Dialogs that add pictures to a class: drawing, and the camera.

import { requestJson } from "./api.js";
import { Camera } from "./camera.js";
import { byId, h, icon, keyed, showMessage } from "./dom.js";
import { t } from "./language.js";
import { Pad } from "./pad.js";

const EVERY = 125; // milliseconds between two pictures while the button is held
const REFUSED = 400; // one picture, because it is there already; others may be added
const MOST_WAITING = 40; // pictures of the camera that are not uploaded yet

/** A dialog with a drawing pad or a camera; pictures are added to the chosen class. */
class Source {
  constructor(collect, dialog, title, main, add) {
    this.collect = collect;
    this.dialog = byId(dialog);
    this.title = title;
    this.chips = h("div.chips", { role: "group", "aria-label": t("class") });
    this.tally = h("p.note", { role: "status" });
    this.error = h("p.error", { role: "alert", hidden: true });
    this.add = add;
    this.head = h("h2", { id: dialog.replace("-dialog", "-title") });
    this.buttons = h("div.row.end");
    this.dialog.append(
      h("div.dialog-head", {}, this.head, h("button.quiet.icon", { type: "button", "aria-label": t("close"), onclick: () => this.dialog.close() }, icon("close"))),
      this.chips, main, this.error, this.tally, this.buttons);
    this.dialog.addEventListener("close", () => this.closed());
  }

  open(name) {
    this.class = name;
    showMessage(this.error, "");
    this.show();
    this.dialog.showModal();
  }

  show() {
    this.head.textContent = t(this.title, { name: this.class });
    const names = (this.collect.current?.classes || []).map((each) => each.name);
    keyed(this.chips, names, (name) => name,
      (name) => h("button.chip", { type: "button", onclick: () => { this.class = name; this.show(); } }, name),
      (chip, name) => chip.setAttribute("aria-pressed", String(name === this.class)));
    const here = this.collect.current?.classes.find((each) => each.name === this.class);
    this.tally.textContent = here ? t("pictures", { n: here.count }) : "";
  }

  /** Add a picture; returns the error if it was not added. */
  async send(picture, filename, name = this.class) {
    showMessage(this.error, "");
    try {
      const stored = await requestJson("POST", "picture", { task: this.collect.selected, name, filename }, picture);
      if (this.class === name) this.tally.textContent = t("pictures", { n: stored.count });
      return null;
    } catch (error) {
      showMessage(this.error, error.message);
      return error;
    }
  }

  closed() {}
}

export class Drawing extends Source {
  constructor(collect) {
    const pad = new Pad(t("pad"));
    const add = h("button.primary", { type: "button", onclick: () => this.keep() }, t("pad.add"));
    super(collect, "pad-dialog", "pad.title", pad.canvas, add);
    this.pad = pad;
    this.buttons.append(h("button", { type: "button", onclick: () => pad.clear() }, t("clear")), add);
    this.dialog.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target.tagName !== "BUTTON") { event.preventDefault(); this.keep(); }
    });
  }

  async keep() {
    if (this.pad.empty) {
      showMessage(this.error, t("pad.empty"));
      return;
    }
    const [picture, drawn] = [await this.pad.picture(), this.pad.copy()];
    this.pad.clear(); // so that the next one can be begun
    if ((await this.send(picture, t("drawing"))) && this.pad.empty) this.pad.restore(drawn);
  }

  closed() {
    this.pad.clear();
  }
}

/** The camera: a press takes a picture, holding takes a burst, which is uploaded one by one. */
export class Filming extends Source {
  constructor(collect) {
    const camera = new Camera();
    const add = h("button.primary.record", { type: "button", disabled: true }, t("camera.hold"));
    super(collect, "camera-dialog", "camera.title", h("div.film", {}, camera.video), add);
    this.camera = camera;
    this.waiting = []; // [class, picture]
    this.other = h("button", { type: "button", hidden: true, onclick: () => this.attempt(() => camera.turn()) }, t("camera.other"));
    this.tally.after(h("p.note", {}, t("camera.hint")));
    this.buttons.append(this.other, add);
    this.holding = 0;
    const keys = (event) => event.key === " " || event.key === "Enter";
    // Captured: a message that moves the button away from under the pointer does not end a burst.
    add.addEventListener("pointerdown", (event) => { add.setPointerCapture(event.pointerId); this.pressed = true; this.hold(); });
    add.addEventListener("pointerup", () => this.release());
    for (const end of ["pointerleave", "pointercancel", "blur"]) add.addEventListener(end, () => { this.pressed = false; this.release(); });
    add.addEventListener("contextmenu", (event) => event.preventDefault()); // what a long touch would open
    add.addEventListener("keydown", (event) => { if (keys(event)) { event.preventDefault(); this.hold(); } });
    add.addEventListener("keyup", (event) => { if (keys(event)) { event.preventDefault(); this.release(); } });
    // A screen reader clicks without pressing; a click after a press has taken its picture already.
    add.addEventListener("click", () => { if (!this.pressed) this.keep(); this.pressed = false; });
  }

  hold() {
    if (this.holding || this.add.disabled) return;
    this.keep();
    this.holding = setInterval(() => this.keep(), EVERY);
    this.add.classList.add("recording");
  }

  release() {
    clearInterval(this.holding);
    this.holding = 0;
    this.add.classList.remove("recording");
  }

  async attempt(start) {
    this.add.disabled = true;
    try {
      await start();
      if (!this.dialog.open) { this.camera.stop(); return; }
      this.other.hidden = !(await this.camera.several());
      this.add.disabled = false;
    } catch (error) {
      showMessage(this.error, error.message);
    }
  }

  open(name) {
    super.open(name);
    return this.attempt(() => this.camera.start());
  }

  async keep() {
    if (!this.camera.ready || this.waiting.length >= MOST_WAITING) return;
    this.waiting.push([this.class, await this.camera.picture()]);
    if (this.sending) return;
    this.sending = true;
    while (this.waiting.length) {
      const [name, picture] = this.waiting.shift();
      const error = await this.send(picture, t("picture"), name);
      if (error && error.status !== REFUSED) this.waiting.length = 0; // the server is gone
    }
    this.sending = false;
  }

  closed() {
    this.release();
    this.pressed = false;
    this.camera.stop();
  }
}
