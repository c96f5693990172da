// Ask: a drawing, pictures or the camera in; class, task and confidence out, as you go.

import { askJson } from "./api.js";
import { Camera } from "./camera.js";
import { byId, count, h, icon, keyed, percent, say, takesDrops } from "./dom.js";
import { Pad } from "./pad.js";

const PAUSE = 120; // milliseconds after a stroke
const MOST = 60; // pictures answered at a drop

export class Try {
  constructor() {
    this.waiting = 0;
    this.asking = false;
    this.turn = 0;
    this.pad = new Pad("A sheet to draw on; the answer follows", () => this.soon());
    this.camera = new Camera();
    this.buildInput();
    this.buildAnswer();
    this.show("draw");
  }

  buildInput() {
    const tab = (name, word, sign) => h("button.chip", { type: "button", "data-way": name, onclick: () => this.show(name) }, icon(sign), word);
    this.ways = h("div.chips", { role: "group", "aria-label": "How to ask" }, tab("draw", "Draw", "draw"), tab("files", "Pictures", "file"), tab("camera", "Camera", "camera"));
    this.files = h("input", { type: "file", multiple: true, accept: "image/*", hidden: true, "aria-label": "Pictures to try" });
    this.files.addEventListener("change", () => { this.askFiles([...this.files.files]); this.files.value = ""; });
    this.panels = {
      draw: h("div", {}, this.pad.canvas, h("div.row.end", {}, h("button", { type: "button", onclick: () => { this.pad.clear(); this.blank(); } }, "Clear"))),
      files: h("div", {}, h("div.dropzone.tall", {}, icon("file"), h("p", {}, h("b", {}, "Drop pictures"), " here, or ",
        h("button.link", { type: "button", onclick: () => this.files.click() }, "choose some")), this.files), this.list = h("ul.answers")),
      camera: h("div", {}, h("div.film", {}, this.camera.video)),
    };
    this.sentence = h("p.sentence", { role: "alert", hidden: true });
    byId("try-input").append(this.ways, ...Object.values(this.panels), this.sentence);
    takesDrops(byId("try-input"), (transfer) => { this.show("files"); this.askFiles([...transfer.files]); });
  }

  buildAnswer() {
    this.label = h("p.label", {}, "–");
    this.shares = h("ul.shares", { "aria-label": "Confidence in each class" });
    this.line = h("p.note", {}, "Nothing asked yet.");
    this.task = h("select", { id: "try-task", onchange: () => this.soon() });
    this.reject = h("input", { type: "checkbox", id: "try-reject", checked: true, onchange: () => this.soon() });
    byId("try-answer").append(
      h("div.answer", { "aria-live": "polite" }, this.label, this.line), this.shares,
      h("div.options", {},
        h("label.field", {}, h("span", {}, "Task"), this.task),
        h("label.check", {}, this.reject, h("span", {}, "May answer “none of these”"))));
  }

  update(state) {
    this.state = state;
    keyed(this.task, ["", ...state.tasks.map((each) => each.name)], (name) => `=${name}`,
      (name) => h("option", { value: name }, name || "Found by itself"));
    if (!state.tasks.length) this.line.textContent = "It has learned nothing yet; teach it a task first.";
    else if (this.label.textContent === "–" && this.pad.empty) this.line.textContent = "Nothing asked yet.";
  }

  choose(task) {
    this.task.value = task;
  }

  async show(way) {
    this.way = way;
    for (const chip of this.ways.children) chip.setAttribute("aria-pressed", String(chip.dataset.way === way));
    for (const [name, panel] of Object.entries(this.panels)) panel.hidden = name !== way;
    say(this.sentence, "");
    this.camera.stop();
    if (way !== "camera") return;
    try {
      await this.camera.start();
      if (this.way !== "camera") this.camera.stop();
      else this.film();
    } catch (error) {
      say(this.sentence, error.message);
    }
  }

  leave() {
    if (this.way === "camera") this.show("draw");
  }

  async film() {
    while (this.way === "camera" && this.camera.stream) {
      if (this.camera.ready) await this.answerTo(await this.camera.picture(), "The picture");
      await new Promise((done) => setTimeout(done, 250));
    }
  }

  soon() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.askDrawing(), PAUSE);
  }

  async askDrawing() {
    if (this.way !== "draw" || this.pad.empty) return;
    if (this.asking) { this.soon(); return; }
    this.asking = true;
    await this.answerTo(await this.pad.picture(), "The drawing");
    this.asking = false;
  }

  words(said) {
    return { task: this.task.value || null, reject: this.reject.checked ? this.state?.reject ?? 0.05 : null, said };
  }

  async answerTo(picture, said) {
    const turn = ++this.turn;
    try {
      const answer = await askJson("POST", "answer", this.words(said), picture);
      say(this.sentence, "");
      if (turn === this.turn) this.tell(answer);
      return answer;
    } catch (mistake) {
      say(this.sentence, mistake.message);
      return null;
    }
  }

  tell(answer) {
    this.label.textContent = answer.rejected ? "None of these" : answer.label;
    this.label.classList.toggle("none", answer.rejected);
    keyed(this.shares, answer.shares.map((each, place) => [...each, place]), ([, , place]) => String(place), () => h("li", {}, h("span"), h("div.bar", {}, h("i")), h("span")),
      (row, [name, share]) => {
        row.firstElementChild.textContent = name;
        row.lastElementChild.textContent = percent(share);
        row.querySelector("i").style.width = `${100 * share}%`;
      });
    this.line.textContent = answer.rejected
      ? `It would have been ${answer.label} of ${answer.task}, ${percent(answer.confidence)} sure.`
      : `${percent(answer.confidence)} sure · task ${answer.task}`;
  }

  blank() {
    this.turn += 1;
    clearTimeout(this.waiting);
    this.label.textContent = "–";
    this.label.classList.remove("none");
    this.shares.replaceChildren();
    this.line.textContent = this.state?.tasks.length ? "Nothing asked yet." : "It has learned nothing yet; teach it a task first.";
  }

  async askFiles(files) {
    for (const old of this.list.querySelectorAll("img")) URL.revokeObjectURL(old.src);
    this.list.replaceChildren();
    say(this.sentence, files.length > MOST ? `${count(files.length, "picture")} were given; the first ${MOST} are answered here, rivals predict takes any number.` : "");
    for (const file of files.slice(0, MOST)) {
      const words = h("span", {}, "…");
      const image = h("img", { alt: "", src: URL.createObjectURL(file), onerror: (event) => { event.target.hidden = true; } });
      this.list.append(h("li", {}, image, h("span.file", {}, file.name), words));
      if (file.size > (this.state?.limits.picture ?? Infinity)) {
        words.textContent = `has ${(file.size / 2 ** 20).toFixed(1)} MB, and ${this.state.limits.picture / 2 ** 20} MB are the most.`;
        continue;
      }
      try {
        const answer = await askJson("POST", "answer", this.words(file.name), file);
        this.tell(answer);
        words.replaceChildren(h("b", {}, answer.rejected ? "none of these" : answer.label), ` ${percent(answer.confidence)} · ${answer.task}`);
      } catch (mistake) {
        words.textContent = mistake.message;
        words.className = "sentence";
      }
    }
  }
}
