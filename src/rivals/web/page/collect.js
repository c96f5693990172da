// Step 1: collect pictures by class from files, folders, drawings and the camera.

import { address, request, requestJson } from "./api.js";
import { acceptDrops, announce, byId, h, icon, keyed, showMessage } from "./dom.js";
import { chosen, dropped } from "./folders.js";
import { nodes, t } from "./language.js";
import { MOVED, PictureDialog } from "./picture.js";
import { Project } from "./project.js";
import { Drawing, Filming } from "./sources.js";
import { upload } from "./upload.js";

const FEW = 12; // thumbnails of a class
const MOST = 1000; // thumbnails if all are requested
const KEY = "rivals.task";

export class Collect {
  constructor(changed) {
    this.changed = changed; // called when another task is selected
    this.state = null;
    this.created = null; // a new or renamed task that the server has not sent yet
    this.renaming = false;
    this.expected = null; // a task that is selected as soon as the server sends it
    this.selected = localStorage.getItem(KEY);
    this.field = byId("task-name");
    this.field.addEventListener("change", () => this.name());
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault(); // or it would submit the form that gets the focus
      byId("class-name")?.focus();
    });
    acceptDrops(byId("collect"), async (transfer) => this.addFolders(await dropped(transfer)));
    byId("folder-words").append(...nodes("folders", {
      drop: h("b", {}, t("folders.drop")),
      choose: h("button.link", { type: "button", onclick: () => byId("folder-input").click() }, t("folders.choose")),
    }));
    byId("folder-input").addEventListener("change", (event) => {
      this.addFolders(chosen(event.target.files));
      event.target.value = "";
    });
    this.addCard = this.makeAddCard();
    this.drawing = new Drawing(this);
    this.filming = new Filming(this);
    this.picture = new PictureDialog(this);
    this.project = new Project(this);
  }

  get current() {
    return this.state?.collected.find((each) => each.task === this.selected) || null;
  }

  get busy() {
    return this.state?.trainings.some((job) => job.task === this.selected && ["queued", "running"].includes(job.state));
  }

  select(task) {
    this.selected = task;
    if (task === null) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, task);
    this.field.value = task ?? "";
    showMessage(byId("task-error"), "");
    showMessage(byId("left-out"), "");
    this.update(this.state);
    this.changed();
  }

  update(state) {
    const first = this.state === null;
    this.state = state;
    const names = state.collected.map((each) => each.task);
    if (names.includes(this.created)) this.created = null;
    if (names.includes(this.expected)) {
      this.remember(this.expected);
      this.expected = null;
    }
    if (this.selected !== null && this.selected !== this.created && !this.renaming && !names.includes(this.selected)) {
      this.selected = null;
      if (this.field.value && document.activeElement !== this.field) this.field.value = "";
    }
    if (first && this.selected === null && names.length) this.selected = names.at(-1);
    if (first) this.field.value = this.selected ?? "";
    this.showSets(names);
    this.showClasses();
    this.project.update();
    byId("collect").classList.toggle("busy", Boolean(this.busy));
    this.field.disabled = Boolean(this.busy);
  }

  showSets(names) {
    const items = names.length ? [...names, null] : [];
    keyed(byId("sets"), items, (name) => (name === null ? "new" : `=${name}`),
      (name) => h("button.chip", { type: "button", onclick: () => { this.select(name); if (name === null) this.field.focus(); } },
        name === null ? t("collect.new") : name),
      (chip, name) => chip.setAttribute("aria-pressed", String(name === this.selected)));
  }

  showClasses() {
    const classes = this.current?.classes || [];
    const items = [...classes, ...(this.busy ? [] : [null])];
    keyed(byId("classes"), items, (each) => (each === null ? "add" : `=${this.selected}/${each.name}`),
      (each) => (each === null ? this.addCard : this.makeClass(each.name)),
      (card, each) => { if (each !== null) this.showClass(card, each); });
    byId("folders").hidden = Boolean(this.busy);
    byId("gather").classList.toggle("empty", !classes.length);
  }

  // Classes ------------------------------------------------------------------------------------

  makeAddCard() {
    const field = h("input", {
      id: "class-name", type: "text", maxLength: 60, autocomplete: "off", spellcheck: false,
      placeholder: t("class.placeholder"), "aria-label": t("class.add.label"),
    });
    const message = h("p.error", { role: "alert", hidden: true });
    const form = h("form.class.add", {
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          showMessage(message, "");
          if (this.current?.classes.some((each) => each.name === field.value.trim())) {
            showMessage(message, t("class.taken", { name: field.value.trim() }));
            return;
          }
          await this.addClass(field.value);
          field.value = "";
          field.focus();
        } catch (error) {
          showMessage(message, error.message);
        }
      },
    }, h("span.caption", {}, t("class.add")), h("div.row", {}, field, h("button", { type: "submit" }, t("class.add.button"))), message);
    return form;
  }

  /** The name of the selected task; an Error if it has none yet. */
  taskName() {
    const name = this.selected ?? this.field.value.trim();
    if (!name) {
      this.field.focus();
      throw new Error(t("task.nameless"));
    }
    return name;
  }

  async addClass(name) {
    const made = await requestJson("PUT", "class", { task: this.taskName(), name });
    if (this.selected !== made.task) this.goTo(made.task);
    return made.name;
  }

  /** Select a task that the server may not have sent yet. */
  goTo(task) {
    this.created = task;
    this.remember(task);
    this.update(this.state);
    this.changed();
  }

  /** Select a task when it comes back, if it does: one that was learned elsewhere has no pictures. */
  expect(task) {
    this.expected = task;
    this.update(this.state);
  }

  remember(task) {
    this.selected = task;
    localStorage.setItem(KEY, task);
    this.field.value = task;
  }

  makeClass(name) {
    const button = (properties) => ({ type: "button", ...properties });
    const field = h("input.class-title", { value: name, maxLength: 60, "aria-label": t("class.name", { name }), spellcheck: false });
    const message = h("p.error", { role: "alert", hidden: true });
    const input = h("input", { type: "file", multiple: true, accept: "image/*,video/*", hidden: true, "aria-label": t("class.pictures", { name }) });
    const attempt = async (what) => {
      try {
        showMessage(message, "");
        await what();
      } catch (error) {
        showMessage(message, error.message);
        field.value = name;
      }
    };
    field.addEventListener("change", () => attempt(() => request("PATCH", "class", { task: this.selected, name, to: field.value })));
    input.addEventListener("change", () => { this.upload(name, [...input.files]); input.value = ""; });
    const card = h("div.class", { role: "group", "aria-label": t("class.of", { name }) },
      h("div.class-head", {}, field, h("span.count"),
        h("button.quiet.icon", button({ "aria-label": t("class.remove", { name }), title: t("remove"),
          onclick: () => attempt(() => request("DELETE", "class", { task: this.selected, name })) }), icon("close"))),
      h("div.thumbs"),
      h("div.row.sources", {},
        h("button", button({ onclick: () => input.click() }), icon("file"), t("class.files")),
        h("button", button({ onclick: () => this.drawing.open(name) }), icon("draw"), t("class.draw")),
        h("button", button({ onclick: () => this.filming.open(name) }), icon("camera"), t("class.camera")), input),
      message);
    acceptDrops(card, async (transfer) => {
      const moved = transfer.getData(MOVED);
      if (moved) { attempt(() => this.picture.move(JSON.parse(moved), name)); return; }
      const found = await dropped(transfer);
      this.upload(name, [...found.loose, ...[...found.classes.values()].flat()]);
    });
    return card;
  }

  showClass(card, { name, count: number, newest }) {
    card.querySelector(".count").textContent = number ? t("pictures", { n: number }) : t("class.empty");
    for (const each of card.querySelectorAll("button, input")) each.disabled = Boolean(this.busy);
    if (card.all && card.number !== number) this.showAll(card, name);
    card.number = number;
    const few = number > FEW ? [...newest.slice(1 - FEW).reverse(), null] : newest.slice(-FEW).reverse();
    this.showThumbs(card, name, card.all ? card.all : few);
  }

  showThumbs(card, name, pictures) {
    const thumbs = card.querySelector(".thumbs");
    const task = this.selected;
    thumbs.classList.toggle("all", Boolean(card.all));
    keyed(thumbs, pictures, (each) => each ?? "more",
      (each) => each === null
        ? h("button.more", { type: "button", onclick: () => this.showAll(card, name) })
        : h("button.thumb", { type: "button", "aria-label": t("picture.open", { name }), draggable: true,
            ondragstart: (event) => event.dataTransfer.setData(MOVED, JSON.stringify({ task, name, picture: each })),
            onclick: () => this.picture.open({ task, name, picture: each }) },
            h("img", { alt: "", loading: "lazy", draggable: false, src: address("picture", { task, name, picture: each }) })),
      (node, each) => {
        if (each !== null) return;
        node.textContent = `+${card.number - FEW + 1}`;
        node.setAttribute("aria-label", t("class.all", { count: card.number, name }));
      });
  }

  async showAll(card, name) {
    try {
      card.all = (await requestJson("GET", "pictures", { task: this.selected, name })).reverse().slice(0, MOST);
      this.showThumbs(card, name, card.all);
    } catch {
      card.all = null; // the class was renamed or removed meanwhile
    }
  }

  // Uploads ------------------------------------------------------------------------------------

  async name() {
    const message = byId("task-error");
    showMessage(message, "");
    if (this.selected === null || !this.current) return;
    this.renaming = true;
    try {
      this.goTo((await requestJson("PATCH", "class", { task: this.selected, to: this.field.value })).name);
    } catch (error) {
      showMessage(message, error.message);
      this.field.value = this.selected;
    }
    this.renaming = false;
  }

  async addFolders(found) {
    const message = byId("task-error");
    showMessage(message, "");
    if (!found.classes.size) {
      showMessage(message, found.loose.length
        ? t("folders.loose")
        : t("folders.none"));
      return;
    }
    try {
      if (this.busy) throw new Error(t("task.busy"));
      if (this.selected === null && !this.field.value.trim()) {
        if (found.name === null) this.taskName();
        this.field.value = found.name;
      }
      const sets = [];
      for (const [name, files] of found.classes) sets.push([await this.addClass(name), files]);
      await this.send(sets.flatMap(([name, files]) => files.map((file) => [name, file])));
      if (found.loose.length) this.showRefused([t("folders.outside", { n: found.loose.length })]);
    } catch (error) {
      showMessage(message, error.message);
    }
  }

  upload(name, files) {
    return this.send(files.map((file) => [name, file]));
  }

  /** Upload [class, file] pairs; refused files are listed with the reason. */
  async send(pairs) {
    showMessage(byId("left-out"), "");
    const { added, refused } = await upload(this.selected, pairs, this.state.limits.picture_bytes, byId("collect-progress"));
    announce(t("upload.added", { n: added }));
    if (refused.length) this.showRefused(refused);
  }

  showRefused(messages) {
    const node = byId("left-out");
    node.hidden = false;
    const [first, ...others] = messages;
    node.replaceChildren(h("p.error", {}, first));
    if (others.length) {
      node.append(h("details", {}, h("summary", {}, t("upload.others", { n: others.length })),
        h("ul", {}, ...others.slice(0, 200).map((each) => h("li", {}, each)))));
    }
  }
}
