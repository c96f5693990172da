// All learned tasks with accuracy, size and winners; drop a task.

import { request, requestJson } from "./api.js";
import { accuracyNodes, byId, bytes, count, duration, h, icon, keyed, showMessage } from "./dom.js";
import { WinnerMap } from "./winner_map.js";

const MAPS = 40; // winner maps that are requested, at most

export class Tasks {
  constructor({ onTry, onDownload }) {
    this.onTry = onTry;
    this.onDownload = onDownload;
    this.winners = new Map(); // by task and how often it was trained
    this.list = byId("task-list");
    this.dialog = byId("drop-dialog");
    this.visible = false;
  }

  update(state) {
    this.state = state;
    this.overview();
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
      node.replaceChildren(h("div.card", {}, h("p.note", {}, "Nothing yet. Learned tasks appear here with their accuracy, their size and a map of their winning units.")));
      return;
    }
    const all = tasks.reduce((sum, task) => sum + task.bytes, 0);
    const classes = tasks.reduce((sum, task) => sum + task.classes.length, 0);
    const shares = Object.entries(room || {});
    node.replaceChildren(h("div.card.overview", {},
      h("div.fact", {}, h("b", {}, String(tasks.length)), h("span", {}, tasks.length === 1 ? "task" : "tasks")),
      h("div.fact", {}, h("b", {}, String(classes)), h("span", {}, "classes")),
      h("div.fact", {}, h("b", {}, bytes(all)), h("span", {}, "on disk")),
      h("div.room", {}, h("span.caption", {}, "Free connections in each layer"),
        ...shares.map(([, share], number) => h("div.layer-room", { role: "img", "aria-label": `Layer ${number + 1}: ${Math.round(100 * share)} % free` },
          h("div.bar", {}, bar(share)), h("span", {}, `${Math.round(100 * share)} %`))))));
  }

  card(task) {
    const others = this.state.tasks.filter((each) => each.name !== task.name);
    const row = this.state.overlap?.[this.state.tasks.indexOf(task)];
    const shares = row && others.length ? this.nearest(task, row) : null;
    const facts = [`${count(task.images, "picture")}`, `${count(task.weights, "weight")}`, bytes(task.bytes), duration(task.seconds)];
    if (task.refined) facts.push(`trained ${task.refined + 1} times`);
    return h("article.card.task", { "aria-label": `Task ${task.name}` },
      h("div.row.spread.top-row", {},
        h("h2", {}, task.name),
        h("div.score", {}, h("b", {}, ...accuracyNodes(task.accuracy, task.interval)), h("span", {}, `on ${count(task.held, "held-out picture")}`))),
      h("p.chips", {}, ...task.classes.slice(0, 24).map((name) => h("span.tag", {}, name)),
        task.classes.length > 24 ? h("span.tag", {}, `+${task.classes.length - 24}`) : null),
      h("p.note", {}, facts.join(" · ")),
      task.inherited_from.length ? h("p.note", {}, `Started from the weights of ${names(task.inherited_from)}.`) : null,
      h("div.map", { "data-map": task.name }),
      shares ? h("p.note", {}, shares) : null,
      h("div.row.end", {},
        h("button", { type: "button", onclick: () => this.onTry(task.name) }, icon("try"), "Try"),
        h("button", { type: "button", onclick: () => this.onDownload(task.name) }, icon("down"), "Download"),
        h("button.danger", { type: "button", onclick: () => this.confirmDrop(task) }, icon("drop"), "Drop")));
  }

  nearest(task, row) {
    const near = this.state.tasks.map((each, number) => [row[number], each.name]).filter(([, name]) => name !== task.name).sort((a, b) => b[0] - a[0])[0];
    if (near[0] < 0.5) return null; // also a task without winners
    return `${near[0].toFixed(0)} % of its winners are also winners of ${near[1]}. Open dots are units that other tasks use, too.`;
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
    } }, `Drop ${task.name}`);
    this.dialog.replaceChildren(
      h("h2", { id: "drop-title" }, `Drop ${task.name}?`),
      h("p", {}, "The task and its collected pictures are deleted. The other tasks do not change."),
      heirs.length ? h("p.heirs", {}, `${names(heirs)} started from the weights of ${task.name}; what ${heirs.length === 1 ? "it" : "they"} learned from it stays.`) : "",
      message,
      h("div.row.end", {}, h("button", { type: "button", autofocus: true, onclick: () => this.dialog.close() }, "Keep it"), drop));
    this.dialog.showModal();
  }
}

function bar(share) {
  const inside = h("i");
  inside.style.width = `${100 * share}%`;
  return inside;
}

const names = (all) => (all.length < 2 ? all.join("") : `${all.slice(0, -1).join(", ")} and ${all.at(-1)}`);
