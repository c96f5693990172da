// Which part of a picture decided: the picture under its heat map, and a sentence.

import { request } from "./api.js";
import { byId, h, icon, percent, showMessage } from "./dom.js";
import { known, t } from "./language.js";

export class Explanation {
  constructor() {
    this.dialog = byId("explain-dialog");
    this.turn = 0;
    this.picture = h("img.heat", { alt: "", hidden: true });
    this.sentence = h("p", { role: "status" });
    this.hint = h("p.note", {}, t("explain.hint"));
    this.error = h("p.error", { role: "alert", hidden: true });
    this.dialog.append(
      h("div.dialog-head", {}, h("h2", { id: "explain-title" }, t("explain.title")),
        h("button.quiet.icon", { type: "button", "aria-label": t("close"), onclick: () => this.dialog.close() }, icon("close"))),
      this.picture, this.sentence, this.hint, this.error);
    this.dialog.addEventListener("close", () => this.clear());
  }

  clear() {
    this.turn += 1;
    URL.revokeObjectURL(this.picture.src);
    this.picture.hidden = this.hint.hidden = true;
    showMessage(this.error, "");
  }

  /** Ask what decided in a picture (a Blob), among the classes of `task`, or of the one that is found. */
  async open({ picture, filename }, task) {
    this.clear();
    const { turn } = this;
    this.sentence.textContent = t("explain.asking");
    this.dialog.showModal();
    try {
      const response = await request("POST", "explanation", { task, filename }, picture);
      const heat = await response.blob();
      if (turn !== this.turn) return; // it was closed meanwhile
      const found = JSON.parse(decodeURIComponent(response.headers.get("X-Explanation")));
      this.picture.src = URL.createObjectURL(heat);
      this.picture.hidden = this.hint.hidden = false;
      this.sentence.textContent = sentence(found);
    } catch (error) {
      if (turn !== this.turn) return;
      this.sentence.textContent = "";
      showMessage(this.error, error.message);
    }
  }
}

const whole = (share) => percent(share).replace(" ", "\u00a0"); // stays in one line

function sentence({ verdict, label, part, probability, without, instead }) {
  const words = { label, instead, part: known(`part.${part}`, part), now: whole(probability), then: whole(without) };
  return t(`explain.${verdict}`, words);
}
