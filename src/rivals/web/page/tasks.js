// All learned tasks with accuracy, size and winners; drop a task.

import { request, requestJson } from "./api.js";
import { accuracyNodes, byId, bytes, duration, h, icon, keyed, showMessage } from "./dom.js";
import { decimal, listed, t } from "./language.js";
import { WinnerMap } from "./winner_map.js";

const MAPS = 40; // winner maps that are requested, at most

export class Tasks {
  constructor({ onTry, onDownload, onUndo }) {
    this.onTry = onTry;
    this.onDownload = onDownload;
    this.onUndo = onUndo;
    this.winners = new Map(); // by task and how often it was trained
    this.list = byId("task-list");
    this.dialog = byId("drop-dialog");
    this.visible = false;
  }

  update(state) {
    this.state = state;
    this.overview();
    this.undo();
    // A card also describes other tasks; it is made again when they change.
    const others = (task) => JSON.stringify([task.inherited_from, state.overlap?.[state.tasks.indexOf(task)]]);
    keyed(this.list, state.tasks, (task) => this.key(task) + others(task), (task) => this.card(task));
    if (this.visible) this.maps();
  }

  key(task) {
    return `${task.name}/${task.refined}/${task.seconds}`;
  }

  overview() {
    const { tasks, room, error } = this.state;
    const node = byId("overview");
    if (error) {
      node.replaceChildren(h("p.error", {}, error));
      return;
    }
    if (!tasks.length) {
      node.replaceChildren(h("div.card", {}, h("p.note", {}, t("tasks.empty"))));
      return;
    }
    const all = tasks.reduce((sum, task) => sum + task.bytes, 0);
    const classes = tasks.reduce((sum, task) => sum + task.classes.length, 0);
    const shares = Object.values(room || {});
    const fact = (value, name) => h("div.fact", {}, h("b", {}, value), h("span", {}, name));
    const open = node.querySelector("details")?.open ?? false;
    node.replaceChildren(h("div.card", {},
      h("div.facts", {}, fact(String(tasks.length), t("tasks.count", { n: tasks.length })),
        fact(String(classes), t("tasks.classes", { n: classes })), fact(bytes(all), t("tasks.bytes")),
        shares.length ? fact(`${Math.round(100 * Math.min(...shares))} %`, t("tasks.free")) : null),
      h("details", { open }, h("summary", {}, t("tasks.room")),
        h("div.room", {}, ...shares.map((share, number) => h("div.layer-room", { role: "img", "aria-label": t("tasks.layer", { number: number + 1, percent: Math.round(100 * share) }) },
          h("div.bar", {}, bar(share)), h("span", {}, `${Math.round(100 * share)} %`)))))));
  }

  /** The last drop, while it can be undone. */
  undo() {
    const { dropped } = this.state;
    const node = byId("undo");
    if (node.dataset.task === (dropped ?? "")) return;
    node.dataset.task = dropped ?? "";
    node.hidden = !dropped;
    node.replaceChildren();
    if (!dropped) return;
    const message = h("p.error", { role: "alert", hidden: true });
    const attempt = async (method) => {
      try {
        const { task } = await requestJson(method, "undo");
        if (task) this.onUndo(task);
      } catch (error) {
        showMessage(message, error.message);
      }
    };
    node.append(h("p", {}, t("undo.what", { task: dropped })), h("div.row", {},
      h("button", { type: "button", onclick: () => attempt("POST") }, t("undo")),
      h("button.quiet", { type: "button", onclick: () => attempt("DELETE") }, t("undo.never"))), message);
  }

  card(task) {
    const others = this.state.tasks.filter((each) => each.name !== task.name);
    const row = this.state.overlap?.[this.state.tasks.indexOf(task)];
    const shares = row && others.length ? this.nearest(task, row) : null;
    const facts = [t("pictures", { n: task.images }), bytes(task.bytes), duration(task.seconds)];
    if (task.refined) facts.push(t("tasks.trained", { n: task.refined + 1 }));
    return h("article.card.task", { "aria-label": t("tasks.one", { task: task.name }) },
      h("div.row.spread.top-row", {},
        h("h2", {}, task.name),
        h("div.score", {}, h("b", {}, ...accuracyNodes(task.accuracy, task.interval)), h("span", {}, t("fact.held.on", { n: task.held })))),
      h("p.chips", {}, ...task.classes.slice(0, 24).map((name) => h("span.tag", {}, name)),
        task.classes.length > 24 ? h("span.tag", {}, `+${task.classes.length - 24}`) : null),
      h("p.note", {}, facts.join(" · ")),
      task.inherited_from.length ? h("p.note", {}, t("tasks.from", { tasks: listed(task.inherited_from) })) : null,
      h("details", {}, h("summary", {}, t("tasks.inside")), h("p.note", {}, t("weights", { n: task.weights })),
        h("div.map", { "data-map": task.name }), shares ? h("p.note.nearest", {}, shares) : null),
      h("div.row.end", {},
        h("button", { type: "button", onclick: () => this.onTry(task.name) }, icon("try"), t("view.try")),
        h("button", { type: "button", onclick: () => this.onDownload(task.name) }, icon("down"), t("download.button")),
        h("button.danger", { type: "button", onclick: () => this.confirmDrop(task) }, icon("drop"), t("tasks.drop"))));
  }

  nearest(task, row) {
    const near = this.state.tasks.map((each, number) => [row[number], each.name]).filter(([, name]) => name !== task.name).sort((a, b) => b[0] - a[0])[0];
    if (near[0] < 0.5) return null; // also a task without winners
    return t("tasks.nearest", { percent: decimal(near[0]), task: near[1] });
  }

  async maps() {
    const wanted = this.state.tasks.slice(-MAPS);
    for (const task of wanted) {
      if (this.winners.has(this.key(task))) continue;
      try {
        this.winners.set(this.key(task), await requestJson("GET", "winners", { task: task.name }));
      } catch {
        return; // the task was dropped meanwhile; an update follows
      }
    }
    const found = wanted.map((task) => [task, this.winners.get(this.key(task))]).filter(([, won]) => won);
    for (const [task, won] of found) {
      const place = [...this.list.querySelectorAll("[data-map]")].find((node) => node.dataset.map === task.name);
      if (!place || !won.winners.length) continue; // a task that reads no network has none
      if (won.winners.flat().every((unit) => unit === 0)) { // those of the ancestor
        place.replaceChildren(h("p.note", {}, t("tasks.base")));
        place.parentElement.querySelector(".nearest")?.remove();
        continue;
      }
      const others = found.filter(([other]) => other.name !== task.name).map(([, each]) => each.winners);
      const shared = won.winners.map((layer, number) => layer.map((unit, block) => others.some((each) => each[number]?.[block] === unit)));
      if (!place.winnerMap) {
        place.winnerMap = new WinnerMap(won.winners.map((layer, number) => ({ blocks: layer.length, units: won.units[number] })), true);
        place.replaceChildren(place.winnerMap.node);
      }
      place.winnerMap.update(won.winners, { shared });
      place.winnerMap.layout();
    }
  }

  confirmDrop(task) {
    const heirs = this.state.tasks.filter((each) => each.inherited_from.includes(task.name)).map((each) => each.name);
    const message = h("p.error", { role: "alert", hidden: true });
    const drop = h("button.primary.danger", { type: "button", onclick: async () => {
      drop.disabled = true;
      try {
        await request("DELETE", "task", { task: task.name });
        this.dialog.close();
      } catch (error) {
        showMessage(message, error.message);
        drop.disabled = false;
      }
    } }, t("drop.button", { task: task.name }));
    this.dialog.replaceChildren(
      h("h2", { id: "drop-title" }, t("drop.title", { task: task.name })),
      h("p", {}, t("drop.what")),
      heirs.length ? h("p.heirs", {}, t("drop.heirs", { tasks: listed(heirs), task: task.name, n: heirs.length })) : "",
      message,
      h("div.row.end", {}, h("button", { type: "button", autofocus: true, onclick: () => this.dialog.close() }, t("drop.keep")), drop));
    this.dialog.showModal();
  }
}

function bar(share) {
  const inside = h("i");
  inside.style.width = `${100 * share}%`;
  return inside;
}
