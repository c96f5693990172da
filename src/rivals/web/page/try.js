// Try the model on drawings, pictures and the camera: class, task and confidence.

import { requestJson } from "./api.js";
import { Camera } from "./camera.js";
import { acceptDrops, byId, h, icon, keyed, percent, showMessage } from "./dom.js";
import { Explanation } from "./explain.js";
import { decimal, nodes, t } from "./language.js";
import { Pad } from "./pad.js";

const DELAY = 120; // milliseconds after a stroke
const MOST = 60; // pictures of one drop that are answered

export class Try {
  constructor() {
    this.waiting = 0;
    this.asking = false;
    this.turn = 0;
    this.pad = new Pad(t("pad.answers"), () => this.soon());
    this.camera = new Camera();
    this.explanation = new Explanation();
    this.answered = null; // the picture of the answer that is shown: {picture, filename}
    this.buildInput();
    this.buildAnswer();
    this.show("draw");
  }

  buildInput() {
    const tab = (name, label, symbol) => h("button.chip", { type: "button", "data-input": name, onclick: () => this.show(name) }, icon(symbol), label);
    this.tabs = h("div.tabs", { role: "group", "aria-label": t("try.input") }, tab("draw", t("class.draw"), "draw"), tab("files", t("try.pictures"), "file"), tab("camera", t("class.camera"), "camera"));
    this.files = h("input", { type: "file", multiple: true, accept: "image/*", hidden: true, "aria-label": t("try.files") });
    this.files.addEventListener("change", () => { this.askFiles([...this.files.files]); this.files.value = ""; });
    this.panels = {
      draw: h("div", {}, this.pad.canvas, h("div.row.end", {}, h("button", { type: "button", onclick: () => { this.pad.clear(); this.blank(); } }, t("clear")))),
      files: h("div", {}, h("div.dropzone.tall", {}, icon("file"), h("p", {}, ...nodes("try.drop", { drop: h("b", {}, t("try.drop.words")),
        choose: h("button.link", { type: "button", onclick: () => this.files.click() }, t("try.choose")) })), this.files), this.list = h("ul.answers")),
      camera: h("div", {}, h("div.film", {}, this.camera.video)),
    };
    this.error = h("p.error", { role: "alert", hidden: true });
    byId("try-input").append(this.tabs, ...Object.values(this.panels), this.error);
    acceptDrops(byId("try-input"), (transfer) => { this.show("files"); this.askFiles([...transfer.files]); });
  }

  buildAnswer() {
    this.label = h("p.label", {}, t("none"));
    this.choices = h("ul.choices", { "aria-label": t("try.choices") });
    this.summary = h("p.note", {}, t("try.nothing"));
    this.task = h("select", { id: "try-task", onchange: () => this.soon() });
    this.reject = h("input", { type: "checkbox", id: "try-reject", checked: true, onchange: () => this.soon() });
    this.why = h("button", { type: "button", hidden: true, onclick: () => this.explain(this.answered) }, t("explain.button"));
    byId("try-answer").append(
      h("div.answer", { "aria-live": "polite" }, this.label, this.summary), this.choices, h("div.row", {}, this.why),
      h("div.options", {},
        h("label.field", {}, h("span", {}, t("task")), this.task),
        h("label.check", {}, this.reject, h("span", {}, t("try.reject")))));
  }

  update(state) {
    this.state = state;
    keyed(this.task, ["", ...state.tasks.map((each) => each.name)], (name) => `=${name}`,
      (name) => h("option", { value: name }, name || t("try.find")));
    if (!state.tasks.length) this.summary.textContent = t("try.untrained");
    else if (this.label.textContent === t("none") && this.pad.empty) this.summary.textContent = t("try.nothing");
  }

  choose(task) {
    this.task.value = task;
  }

  async show(input) {
    this.input = input;
    for (const chip of this.tabs.children) chip.setAttribute("aria-pressed", String(chip.dataset.input === input));
    for (const [name, panel] of Object.entries(this.panels)) panel.hidden = name !== input;
    showMessage(this.error, "");
    this.camera.stop();
    if (input !== "camera") return;
    try {
      await this.camera.start();
      if (this.input !== "camera") this.camera.stop();
      else this.film();
    } catch (error) {
      showMessage(this.error, error.message);
    }
  }

  leave() {
    if (this.input === "camera") this.show("draw");
  }

  async film() {
    const stream = `${Date.now()}-${Math.random()}`; // its last frames answer together
    while (this.input === "camera" && this.camera.stream) {
      if (this.camera.ready) await this.answerTo(await this.camera.picture(), t("picture"), stream);
      await new Promise((done) => setTimeout(done, 250));
    }
  }

  soon() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.askDrawing(), DELAY);
  }

  async askDrawing() {
    if (this.input !== "draw" || this.pad.empty) return;
    if (this.asking) { this.soon(); return; }
    this.asking = true;
    await this.answerTo(await this.pad.picture(), t("drawing"));
    this.asking = false;
  }

  parameters(filename, stream = null) {
    return { stream, task: this.task.value || null, reject: this.reject.checked ? this.state?.reject ?? 0.05 : null, filename };
  }

  async answerTo(picture, filename, stream = null) {
    const turn = ++this.turn;
    try {
      const answer = await requestJson("POST", "answer", this.parameters(filename, stream), picture);
      showMessage(this.error, "");
      if (turn === this.turn) this.showAnswer(answer, { picture, filename });
      return answer;
    } catch (error) {
      showMessage(this.error, error.message);
      return null;
    }
  }

  showAnswer(answer, answered) {
    this.answered = answered;
    this.why.hidden = false;
    this.label.textContent = answer.rejected ? t("try.none") : answer.label;
    this.label.classList.toggle("none", answer.rejected);
    keyed(this.choices, answer.choices.map((each, place) => [...each, place]), ([, , place]) => String(place), () => h("li", {}, h("span"), h("div.bar", {}, h("i")), h("span")),
      (row, [name, confidence]) => {
        row.firstElementChild.textContent = name;
        row.lastElementChild.textContent = percent(confidence);
        row.querySelector("i").style.width = `${100 * confidence}%`;
      });
    this.summary.textContent = answer.rejected
      ? t("try.nearest", { label: answer.label, task: answer.task, percent: percent(answer.confidence) })
      : t("try.answer", { task: answer.task, percent: percent(answer.confidence) });
  }

  explain(answered) {
    this.explanation.open(answered, this.task.value || null);
  }

  blank() {
    this.turn += 1;
    this.why.hidden = true;
    clearTimeout(this.waiting);
    this.label.textContent = t("none");
    this.label.classList.remove("none");
    this.choices.replaceChildren();
    this.summary.textContent = this.state?.tasks.length ? t("try.nothing") : t("try.untrained");
  }

  async askFiles(files) {
    for (const old of this.list.querySelectorAll("img")) URL.revokeObjectURL(old.src);
    this.list.replaceChildren();
    showMessage(this.error, files.length > MOST ? t("try.many", { pictures: t("pictures", { n: files.length }), most: MOST }) : "");
    for (const file of files.slice(0, MOST)) {
      const result = h("span", {}, "…");
      const image = h("img", { alt: "", src: URL.createObjectURL(file), onerror: (event) => { event.target.hidden = true; } });
      this.list.append(h("li", {}, image, h("div", {}, h("span.file", {}, file.name), result)));
      if (file.size > (this.state?.limits.picture_bytes ?? Infinity)) {
        result.textContent = t("try.large", { size: decimal(file.size / 2 ** 20, 1), limit: this.state.limits.picture_bytes / 2 ** 20 });
        continue;
      }
      try {
        const answer = await requestJson("POST", "answer", this.parameters(file.name), file);
        const answered = { picture: file, filename: file.name };
        this.showAnswer(answer, answered);
        result.replaceChildren(h("b", {}, answer.rejected ? t("try.none.short") : answer.label), ` ${percent(answer.confidence)} · ${answer.task}`);
        result.after(h("button.link", { type: "button", "aria-label": t("explain.of", { name: file.name }), onclick: () => this.explain(answered) }, t("explain.button")));
      } catch (error) {
        result.textContent = error.message;
        result.className = "error";
      }
    }
  }
}
