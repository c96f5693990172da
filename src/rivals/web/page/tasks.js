// Everything that was learned: how good, how large, who won; and dropping it.

import { ask, askJson } from "./api.js";
import { Competition } from "./competition.js";
import { byId, bytes, count, duration, h, icon, keyed, say } from "./dom.js";

const SHOWN = 40; // winner maps that are fetched

export class Tasks {
  constructor({ tries, takes }) {
    this.tries = tries;
    this.takes = takes;
    this.winners = new Map(); // by task and how often it was learned
    this.list = byId("task-list");
    this.dialog = byId("drop-dialog");
    this.visible = false;
  }

  update(state) {
    this.state = state;
    this.overview();
    // What a card says of other tasks changes with them: then it is made anew.
    const others = (task) => JSON.stringify([task.inherited_from, state.overlap?.[state.tasks.indexOf(task)]]);
    keyed(this.list, state.tasks, (task) => this.key(task) + others(task), (task) => this.card(task));
    if (this.visible) this.maps();
  }

  key(task) {
    return `${task.name}/${task.refined}/${task.seconds}`;
  }

  overview() {
    const { tasks, room, damage } = this.state;
    const node = byId("overview");
    if (damage) {
      node.replaceChildren(h("p.sentence", {}, damage));
      return;
    }
    if (!tasks.length) {
      node.replaceChildren(h("div.card", {}, h("p.note", {}, "Nothing yet. What you teach appears here, with its size, its accuracy and a map of the units that won it.")));
      return;
    }
    const all = tasks.reduce((sum, task) => sum + task.bytes, 0);
    const classes = tasks.reduce((sum, task) => sum + task.classes.length, 0);
    const shares = Object.entries(room || {});
    node.replaceChildren(h("div.card.overview", {},
      h("div.fact", {}, h("b", {}, String(tasks.length)), h("span", {}, tasks.length === 1 ? "task" : "tasks")),
      h("div.fact", {}, h("b", {}, String(classes)), h("span", {}, "classes")),
      h("div.fact", {}, h("b", {}, bytes(all)), h("span", {}, "on disk")),
      h("div.room", {}, h("span.caption", {}, "Room left, layer by layer"),
        ...shares.map(([, share], number) => h("div.layer-room", { role: "img", "aria-label": `Layer ${number + 1}: ${Math.round(100 * share)} % free` },
          h("div.bar", {}, bar(share)), h("span", {}, `${Math.round(100 * share)} %`))))));
  }

  card(task) {
    const others = this.state.tasks.filter((each) => each.name !== task.name);
    const row = this.state.overlap?.[this.state.tasks.indexOf(task)];
    const shares = row && others.length ? this.nearest(task, row) : null;
    const facts = [`${count(task.images, "picture")}`, `${count(task.weights, "weight")}`, bytes(task.bytes), duration(task.seconds)];
    if (task.refined) facts.push(`learned ${task.refined + 1} times`);
    return h("article.card.task", { "aria-label": `Task ${task.name}` },
      h("div.row.spread.top-row", {},
        h("div", {}, h("h2", {}, task.name), h("p.chips.small", {}, ...task.classes.slice(0, 24).map((name) => h("span.tag", {}, name)),
          task.classes.length > 24 ? h("span.tag", {}, `+${task.classes.length - 24}`) : null)),
        h("div.score", {}, h("b", {}, `${task.accuracy.toFixed(1)} %`), h("span", {}, "right on held-out pictures"))),
      h("p.note", {}, facts.join(" · ")),
      task.inherited_from.length ? h("p.note", {}, `Began with what ${names(task.inherited_from)} had learned.`) : null,
      h("div.map", { "data-map": task.name }),
      shares ? h("p.note", {}, shares) : null,
      h("div.row.end", {},
        h("button", { type: "button", onclick: () => this.tries(task.name) }, icon("try"), "Try"),
        h("button", { type: "button", onclick: () => this.takes(task.name) }, icon("down"), "Take away"),
        h("button.danger", { type: "button", onclick: () => this.ask(task) }, icon("drop"), "Drop")));
  }

  nearest(task, row) {
    const near = this.state.tasks.map((each, number) => [row[number], each.name]).filter(([, name]) => name !== task.name).sort((a, b) => b[0] - a[0])[0];
    return `Shares ${near[0].toFixed(0)} % of its winners with ${near[1]}; open dots are units that other tasks won, too.`;
  }

  async maps() {
    const wanted = this.state.tasks.slice(-SHOWN);
    for (const task of wanted) {
      if (this.winners.has(this.key(task))) continue;
      try {
        this.winners.set(this.key(task), await askJson("GET", "winners", { task: task.name }));
      } catch {
        return; // dropped meanwhile; the next state tells
      }
    }
    const found = wanted.map((task) => [task, this.winners.get(this.key(task))]).filter(([, won]) => won);
    for (const [task, won] of found) {
      const place = [...this.list.querySelectorAll("[data-map]")].find((node) => node.dataset.map === task.name);
      if (!place) continue;
      const others = found.filter(([other]) => other.name !== task.name).map(([, each]) => each.winners);
      const shared = won.winners.map((layer, number) => layer.map((unit, block) => others.some((each) => each[number]?.[block] === unit)));
      if (!place.competition) {
        place.competition = new Competition(won.winners.map((layer, number) => ({ blocks: layer.length, units: won.units[number] })), true);
        place.replaceChildren(place.competition.node);
      }
      place.competition.tell(won.winners, { settled: true, shared });
      place.competition.lay();
    }
  }

  ask(task) {
    const heirs = this.state.tasks.filter((each) => each.inherited_from.includes(task.name)).map((each) => each.name);
    const sentence = h("p.sentence", { role: "alert", hidden: true });
    const drop = h("button.primary.danger", { type: "button", onclick: async () => {
      drop.disabled = true;
      try {
        await ask("DELETE", "task", { task: task.name });
        this.dialog.close();
      } catch (mistake) {
        say(sentence, mistake.message);
        drop.disabled = false;
      }
    } }, `Drop ${task.name}`);
    this.dialog.replaceChildren(
      h("h2", { id: "drop-title" }, `Drop ${task.name}?`),
      h("p", {}, "What only this task learned, and its collected pictures, are removed from this machine. All other tasks keep every bit."),
      heirs.length ? h("p.heirs", {}, `${names(heirs)} began with what ${task.name} had learned; that stays in ${heirs.length === 1 ? "it" : "them"}.`) : "",
      sentence,
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
