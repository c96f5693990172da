// Dialogs that add pictures to a class: drawing, and the camera.

import { requestJson } from "./api.js";
import { Camera } from "./camera.js";
import { byId, count, h, icon, keyed, showMessage } from "./dom.js";
import { Pad } from "./pad.js";

/** A dialog with a drawing pad or a camera; pictures are added to the chosen class. */
class Source {
  constructor(collect, dialog, title, main, addLabel) {
    this.collect = collect;
    this.dialog = byId(dialog);
    this.title = title;
    this.chips = h("div.chips", { role: "group", "aria-label": "Class" });
    this.tally = h("p.note", { role: "status" });
    this.error = h("p.error", { role: "alert", hidden: true });
    this.add = h("button.primary", { type: "button", onclick: () => this.keep() }, addLabel);
    this.head = h("h2", { id: dialog.replace("-dialog", "-title") });
    this.buttons = h("div.row.end", {});
    this.dialog.append(
      h("div.dialog-head", {}, this.head, h("button.quiet.icon", { type: "button", "aria-label": "Close", onclick: () => this.dialog.close() }, icon("close"))),
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
    this.head.textContent = `${this.title} ${this.class}`;
    const names = (this.collect.current?.classes || []).map((each) => each.name);
    keyed(this.chips, names, (name) => name,
      (name) => h("button.chip", { type: "button", onclick: () => { this.class = name; this.show(); } }, name),
      (chip, name) => chip.setAttribute("aria-pressed", String(name === this.class)));
    const here = this.collect.current?.classes.find((each) => each.name === this.class);
    this.tally.textContent = here ? count(here.count, "picture") : "";
  }

  async send(picture, filename) {
    showMessage(this.error, "");
    try {
      const parameters = { task: this.collect.selected, name: this.class, filename };
      const stored = await requestJson("POST", "picture", parameters, picture);
      if (this.class === parameters.name) this.tally.textContent = count(stored.count, "picture");
      return true;
    } catch (error) {
      showMessage(this.error, error.message);
      return false;
    }
  }

  closed() {}
}

export class Drawing extends Source {
  constructor(collect) {
    const pad = new Pad("Drawing area");
    super(collect, "pad-dialog", "Draw", pad.canvas, "Add and draw the next");
    this.pad = pad;
    this.buttons.append(h("button", { type: "button", onclick: () => pad.clear() }, "Clear"), this.add);
    this.dialog.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target.tagName !== "BUTTON") { event.preventDefault(); this.keep(); }
    });
  }

  async keep() {
    if (this.pad.empty) {
      showMessage(this.error, "The drawing is empty; draw something first.");
      return;
    }
    const picture = await this.pad.picture();
    this.pad.clear();
    await this.send(picture, "The drawing");
  }

  closed() {
    this.pad.clear();
  }
}

export class Filming extends Source {
  constructor(collect) {
    const camera = new Camera();
    super(collect, "camera-dialog", "Take pictures of", h("div.film", {}, camera.video), "Take a picture");
    this.camera = camera;
    this.buttons.append(this.add);
    this.holding = 0;
    const hold = () => { clearInterval(this.holding); this.holding = setInterval(() => this.keep(), 350); };
    const release = () => { clearInterval(this.holding); this.holding = 0; };
    this.add.addEventListener("pointerdown", hold); // holding the button takes several pictures
    for (const end of ["pointerup", "pointerleave", "pointercancel"]) this.add.addEventListener(end, release);
  }

  async open(name) {
    super.open(name);
    this.add.disabled = true;
    try {
      await this.camera.start();
      this.add.disabled = false;
    } catch (error) {
      showMessage(this.error, error.message);
    }
  }

  async keep() {
    if (this.camera.ready) await this.send(await this.camera.picture(), "The picture");
  }

  closed() {
    clearInterval(this.holding);
    this.camera.stop();
  }
}
