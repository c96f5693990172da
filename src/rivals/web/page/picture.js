// One collected picture: look at it, move it to another class, remove it.

import { address, request } from "./api.js";
import { announce, byId, h, icon, showMessage } from "./dom.js";
import { t } from "./language.js";

export const MOVED = "application/x-rivals-picture"; // what is dragged from one class to another

export class PictureDialog {
  constructor(collect) {
    this.collect = collect;
    this.dialog = byId("picture-dialog");
  }

  /** Ask what to do with {task, name, picture}; `name` is its class. */
  open(shown) {
    const classes = this.collect.state.collected.find((each) => each.task === shown.task)?.classes || [];
    const others = classes.map((each) => each.name).filter((name) => name !== shown.name);
    const message = h("p.error", { role: "alert", hidden: true });
    const attempt = async (what) => {
      try {
        await what();
        this.dialog.close();
      } catch (error) {
        showMessage(message, error.message);
      }
    };
    this.dialog.replaceChildren(
      h("div.dialog-head", {}, h("h2", { id: "picture-title" }, t("picture.title", shown)),
        h("button.quiet.icon", { type: "button", "aria-label": t("close"), onclick: () => this.dialog.close() }, icon("close"))),
      h("img.shown", { alt: "", src: address("picture", shown) }),
      others.length ? h("p.caption", { id: "picture-move" }, t("picture.move")) : "",
      h("div.chips", { role: "group", "aria-labelledby": others.length ? "picture-move" : null },
        ...others.map((to) => h("button.chip", { type: "button", onclick: () => attempt(() => this.move(shown, to)) }, to))),
      message,
      h("div.row.end", {}, h("button.danger", { type: "button", onclick: () => attempt(() => request("DELETE", "class", shown)) }, icon("drop"), t("picture.remove"))));
    this.dialog.showModal();
  }

  async move(shown, to) {
    if (shown.name === to) return;
    await request("PATCH", "picture", { ...shown, to });
    announce(t("picture.moved", { name: to }));
  }
}
