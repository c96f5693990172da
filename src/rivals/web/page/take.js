// Step 3: a ticket as a file for a device, with its card.

import { ask, askJson } from "./api.js";
import { byId, h, keyed, say } from "./dom.js";

export class Take {
  constructor() {
    this.task = h("select", { id: "take-task" });
    this.formats = h("div.formats", { role: "radiogroup", "aria-label": "Format" });
    this.button = h("button.primary.large", { type: "button", id: "download", onclick: () => this.download() }, "Download");
    this.sentence = h("p.sentence", { role: "alert", hidden: true });
    this.told = h("p.note", { role: "status" });
    this.none = h("p.note", {}, "Once a task is learned, its small network can be downloaded here as a file for a device.");
    this.form = h("div", { hidden: true },
      h("label.field", {}, h("span", {}, "Task"), this.task), this.formats,
      h("div.row.spread", {}, this.told, this.button), this.sentence);
    byId("take").append(this.none, this.form);
    this.known = null;
  }

  async update(state) {
    const names = state.tasks.map((task) => task.name);
    this.none.hidden = names.length > 0;
    this.form.hidden = names.length === 0;
    const fresh = names.filter((name) => !this.known?.includes(name)).at(-1);
    keyed(this.task, names, (name) => name, (name) => h("option", { value: name }, name));
    if (fresh) this.task.value = fresh;
    this.known = names;
    if (names.length && !this.asked) {
      this.asked = true;
      try {
        this.show(await askJson("GET", "formats"));
        say(this.sentence, ""); // of a server that did not answer the time before
      } catch (mistake) {
        this.asked = false;
        say(this.sentence, mistake.message);
      }
    }
  }

  choose(task) {
    this.task.value = task;
    byId("take").scrollIntoView({ block: "center" });
    this.task.focus();
  }

  show(formats) {
    this.formats.replaceChildren(...formats.map((format, number) => h("label.format", { title: format.install || "" },
      h("input", { type: "radio", name: "format", value: format.name, checked: format.name === "onnx" && !format.install || number === 0, disabled: Boolean(format.install) }),
      h("span", {}, h("b", {}, format.label), h("small", {}, format.install ? `not installed: ${format.install}` : format.for)))));
  }

  async download() {
    const to = this.formats.querySelector("input:checked")?.value;
    if (!to) return;
    say(this.sentence, "");
    this.button.disabled = true;
    this.told.textContent = "Writing it and comparing its answers with the ticket's…";
    try {
      const answer = await ask("POST", "ticket", { task: this.task.value, to });
      const link = h("a", { href: URL.createObjectURL(await answer.blob()), download: decodeURIComponent(answer.headers.get("X-Name")) });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
      this.told.textContent = decodeURIComponent(answer.headers.get("X-Sentence"));
    } catch (mistake) {
      this.told.textContent = "";
      say(this.sentence, mistake.message);
    }
    this.button.disabled = false;
  }
}
