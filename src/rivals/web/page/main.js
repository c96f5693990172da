// The page: three views, one state that the server tells, and its views brought up to date with it.

import { follow } from "./api.js";
import { Collect } from "./collect.js";
import { byId, say } from "./dom.js";
import { Take } from "./take.js";
import { Tasks } from "./tasks.js";
import { Train } from "./train.js";
import { Try } from "./try.js";

let parts = {}; // of the state, until both have come
let state = null;
const collect = new Collect(() => { if (state) train.update(state); });
const train = new Train(collect);
const take = new Take();
const tries = new Try();
const tasks = new Tasks({
  tries: (task) => { tries.choose(task); location.hash = "try"; },
  takes: (task) => { location.hash = "teach"; setTimeout(() => take.choose(task)); },
});

function show() {
  const wanted = location.hash.slice(1);
  const view = ["teach", "try", "tasks"].includes(wanted) ? wanted : "teach";
  const before = document.body.dataset.view;
  document.body.dataset.view = view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.to === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (before !== view) scrollTo(0, 0);
  if (view !== "try") tries.leave();
  tasks.visible = view === "tasks";
  if (tasks.visible && state) tasks.maps();
  train.competition?.lay();
}

addEventListener("hashchange", show);
addEventListener("dragover", (event) => event.preventDefault()); // a missed drop must not leave the page
addEventListener("drop", (event) => event.preventDefault());
show();

follow({
  state: (told) => {
    parts = { ...parts, ...told };
    if (!parts.tasks || !parts.trainings) return;
    state = parts;
    byId("model").textContent = state.model;
    document.title = `${state.model} · rivals`;
    for (const part of [collect, train, take, tries, tasks]) part.update(state);
    document.body.classList.add("ready");
  },
  training: (event) => train.tell(event),
  lost: (sentence) => say(byId("banner"), sentence),
});
