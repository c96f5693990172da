// All collected pictures as one file; and a sample to begin with.

import { address, request, requestJson } from "./api.js";
import { byId, h, icon, showMessage } from "./dom.js";
import { nodes, t } from "./language.js";

export class Project {
  constructor(collect) {
    this.collect = collect;
    this.error = h("p.error", { role: "alert", hidden: true });
    this.status = h("p.note", { role: "status", hidden: true });
    this.file = h("input", { type: "file", accept: ".zip", hidden: true, "aria-label": t("project.file") });
    this.file.addEventListener("change", () => { this.open(this.file.files[0]); this.file.value = ""; });
    this.sample = h("p", {}, ...nodes("sample", { load: h("button.link", { type: "button", onclick: () => this.attempt(() => this.load()) }, t("sample.load")) }));
    this.download = h("a.button", { href: address("project", {}), download: "" }, icon("down"), t("project.download"));
    this.choose = h("button", { type: "button", onclick: () => this.file.click() }, icon("folder"), t("project.open"));
    byId("project").append(this.sample, h("div.row", {}, h("span.caption", {}, t("project")), this.download, this.choose, this.file), this.status, this.error);
  }

  update() {
    const { collected, tasks } = this.collect.state;
    this.sample.hidden = this.collect.current !== null;
    this.download.hidden = !tasks.length && !collected.some((task) => task.classes.some((each) => each.count));
  }

  /** Do what may be refused; the sentence that it gives, if it gives one, is shown. */
  async attempt(what) {
    showMessage(this.error, "");
    try {
      showMessage(this.status, await what());
    } catch (error) {
      showMessage(this.status, "");
      showMessage(this.error, error.message);
    }
  }

  async load() {
    const { task } = await requestJson("POST", "sample", { task: t("sample.task") });
    this.collect.goTo(task);
  }

  open(file) {
    return this.attempt(async () => {
      showMessage(this.status, t("project.sending"));
      const { tasks, pictures, model } = await (await request("POST", "project", {}, file)).json();
      if (tasks.length) this.collect.goTo(tasks.at(-1));
      return `${t("project.opened", { n: pictures })} ${model ? t("project.model") : t("project.noModel")}`;
    });
  }
}
