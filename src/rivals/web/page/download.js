// Step 3: download a ticket as a file for a device, with its card.

import { request, requestJson } from "./api.js";
import { byId, bytes, h, keyed, showMessage } from "./dom.js";
import { decimal, known, t } from "./language.js";

export class Download {
  constructor() {
    this.task = h("select", { id: "download-task" });
    this.formats = h("div.formats", { role: "radiogroup", "aria-label": t("download.format") });
    this.button = h("button.primary.large", { type: "button", onclick: () => this.download() }, t("download.button"));
    this.error = h("p.error", { role: "alert", hidden: true });
    this.status = h("p.note", { role: "status" });
    this.empty = h("p.note", {}, t("download.empty"));
    this.form = h("div", { hidden: true },
      h("label.field", {}, h("span", {}, t("task")), this.task), this.formats,
      h("div.row.end", {}, this.status, this.button), this.error);
    byId("download").append(this.empty, this.form);
    this.names = null;
  }

  async update(state) {
    const names = state.tasks.map((task) => task.name);
    this.empty.hidden = names.length > 0;
    this.form.hidden = names.length === 0;
    const newest = names.filter((name) => !this.names?.includes(name)).at(-1);
    keyed(this.task, names, (name) => name, (name) => h("option", { value: name }, name));
    if (newest) this.task.value = newest;
    this.names = names;
    if (names.length && !this.requested) {
      this.requested = true;
      try {
        this.showFormats(await requestJson("GET", "formats"));
        showMessage(this.error, "");
      } catch (error) {
        this.requested = false;
        showMessage(this.error, error.message);
      }
    }
  }

  choose(task) {
    this.task.value = task;
    byId("download").scrollIntoView({ block: "center" });
    this.task.focus();
  }

  showFormats(formats) {
    this.formats.replaceChildren(...formats.map((format, number) => h("label.format", { title: format.install || "" },
      h("input", { type: "radio", name: "format", value: format.name, checked: format.name === "onnx" && !format.install || number === 0, disabled: Boolean(format.install) }),
      h("span", {}, h("b", {}, known(`format.${format.name}`, format.label)),
        h("small", {}, format.install ? t("download.missing", format) : known(`for.${format.name}`, format.purpose))))));
  }

  async download() {
    const to = this.formats.querySelector("input:checked")?.value;
    if (!to) return;
    showMessage(this.error, "");
    this.button.disabled = true;
    this.status.textContent = t("download.writing");
    try {
      const response = await request("POST", "ticket", { task: this.task.value, to });
      const link = h("a", { href: URL.createObjectURL(await response.blob()), download: decodeURIComponent(response.headers.get("X-Filename")) });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
      const compared = JSON.parse(decodeURIComponent(response.headers.get("X-Compared")));
      this.status.textContent = compared
        ? t("download.compared", { file: compared.file, bytes: bytes(compared.bytes), percent: decimal(100 * compared.agreement, compared.agreement < 1 ? 1 : 0), n: compared.images })
        : t("download.ticket", { task: this.task.value });
    } catch (error) {
      this.status.textContent = "";
      showMessage(this.error, error.message);
    }
    this.button.disabled = false;
  }
}
