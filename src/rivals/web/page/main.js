// The page: three views of one state, which the server sends.

import { follow } from "./api.js";
import { Collect } from "./collect.js";
import { byId, showMessage } from "./dom.js";
import { Download } from "./download.js";
import { languageChoice, translate } from "./language.js";
import { Tasks } from "./tasks.js";
import { Train } from "./train.js";
import { Try } from "./try.js";

translate();
document.querySelector(".top").append(languageChoice());

let parts = {}; // of the state, until both have arrived
let state = null;
const collect = new Collect(() => { if (state) train.update(state); });
const train = new Train(collect);
const download = new Download();
const tries = new Try();
const tasks = new Tasks({
  onTry: (task) => { tries.choose(task); location.hash = "try"; },
  onDownload: (task) => { location.hash = "teach"; setTimeout(() => download.choose(task)); },
  onUndo: (task) => collect.expect(task),
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
  train.winnerMap?.layout();
}

addEventListener("hashchange", show);
addEventListener("dragover", (event) => event.preventDefault()); // a drop beside a target must not open the file
addEventListener("drop", (event) => event.preventDefault());
show();

follow({
  state: (received) => {
    parts = { ...parts, ...received };
    if (!parts.tasks || !parts.trainings) return;
    state = parts;
    byId("model").textContent = state.model;
    document.title = `${state.model} · rivals`;
    for (const part of [collect, train, download, tries, tasks]) part.update(state);
    document.body.classList.add("ready");
  },
  training: (event) => train.handle(event),
  lost: (message) => showMessage(byId("banner"), message),
});
