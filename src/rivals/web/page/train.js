// Step 2: what is asked for, what runs, what waits; the competition as it settles.

import { ask } from "./api.js";
import { Competition } from "./competition.js";
import { byId, bytes, count, duration, h, icon, keyed, say, speak } from "./dom.js";

const OPEN = ["queued", "running"];

export class Train {
  constructor(collect) {
    this.collect = collect;
    this.job = null; // the number of the training whose events are shown
    this.summary = h("p.note");
    this.minutes = h("input", { type: "number", min: "0.1", step: "any", inputMode: "decimal", id: "minutes", placeholder: "no limit" });
    this.button = h("button.primary.large", { type: "button", id: "start", onclick: () => this.start() }, "Train");
    this.sentence = h("p.sentence", { role: "alert", hidden: true });
    this.live = h("div.live", { hidden: true });
    this.waiting = h("ul.waiting", { "aria-label": "Waiting trainings" });
    byId("train").append(
      h("div.row.spread", {}, this.summary,
        h("div.row", {}, h("label.field.inline", {}, h("span", {}, "At most, minutes"), this.minutes), this.button)),
      this.sentence, this.live, this.waiting);
    this.build();
  }

  build() {
    this.title = h("h3");
    this.cancel = h("button.quiet", { type: "button", onclick: () => this.stop(this.job) }, "Cancel");
    this.next = h("button", { type: "button", hidden: true, onclick: () => { location.hash = "try"; } }, icon("try"), "Try it");
    this.bar = h("div.bar", { role: "progressbar", "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100 }, h("i"));
    const fact = (name) => { const value = h("b", {}, "–"); return [value, h("div.fact", {}, value, h("span", {}, name))]; };
    const [left, leftBox] = fact("time left");
    const [right, rightBox] = fact("right while learning");
    const [held, heldBox] = fact("right on held-out pictures");
    const [sure, sureBox] = fact("certainty of the competition");
    this.facts = { left, right, held, sure };
    this.phase = h("p.phase");
    this.aside = h("p.note", { hidden: true });
    this.map = h("div.map");
    this.live.append(h("div.row.spread", {}, this.title, this.cancel, this.next), this.bar,
      h("div.facts", {}, leftBox, rightBox, heldBox, sureBox), this.phase, this.aside, this.map);
  }

  async start() {
    say(this.sentence, "");
    try {
      const task = this.collect.selected;
      if (task === null) throw new Error("Collect pictures first.");
      await ask("POST", "training", { task, minutes: this.minutes.value || null });
    } catch (mistake) {
      say(this.sentence, mistake.message);
    }
  }

  async stop(number) {
    try {
      await ask("DELETE", "training", { number });
    } catch (mistake) {
      say(this.sentence, mistake.message);
    }
  }

  update(state) {
    this.state = state;
    const set = this.collect.current;
    const few = set && (set.classes.length < state.fewest.classes || set.classes.some((each) => each.count < state.fewest.pictures));
    const number = set ? set.classes.reduce((sum, each) => sum + each.count, 0) : 0;
    const known = state.tasks.some((task) => task.name === this.collect.selected);
    this.summary.textContent = !set
      ? "Name a task and give it at least two classes."
      : few
        ? `At least ${state.fewest.classes} classes with ${state.fewest.pictures} pictures each; twenty or more make it better.`
        : `${set.task}: ${count(set.classes.length, "class", "classes")}, ${count(number, "picture")}.`;
    this.button.disabled = !set || few || Boolean(this.collect.busy);
    this.button.textContent = known ? "Train again" : "Train";
    this.showWaiting();
    this.showEnd();
  }

  showWaiting() {
    const waiting = this.state.trainings.filter((job) => job.state === "queued");
    keyed(this.waiting, waiting, (job) => String(job.id),
      (job) => h("li", {}, h("span", {}, `${job.task} waits for its turn`),
        h("button.quiet", { type: "button", onclick: () => this.stop(job.id) }, "Cancel")));
  }

  /** A line of the training. */
  tell(event) {
    if (event.job !== this.job) this.begin(event.job);
    const act = { reading: () => this.reads(event), begins: () => this.begins(event), step: () => this.steps(event),
      validation: () => this.validates(event), left_out: () => this.leaves(event), done: () => this.ends(event) }[event.event];
    act?.();
    this.showEnd();
  }

  begin(number) {
    if (number !== this.job) say(this.aside, "");
    this.job = number;
    this.competition = null;
    this.spoken = -1;
    this.map.replaceChildren();
    for (const value of Object.values(this.facts)) value.textContent = "–";
    this.progress(0);
  }

  get current() {
    return this.state?.trainings.find((job) => job.id === this.job) || null;
  }

  reads() {
    this.phase.textContent = "Reading the pictures.";
  }

  begins(event) {
    this.begin(event.job);
    this.phase.textContent = "Units compete for the task.";
    this.competition = new Competition(event.layers);
    this.map.replaceChildren(this.competition.node);
    this.competition.lay();
  }

  steps(event) {
    const share = event.step / event.steps;
    this.progress(share);
    this.facts.left.textContent = duration(event.seconds_left);
    if (event.accuracy !== null && event.accuracy !== undefined) this.facts.right.textContent = `${event.accuracy.toFixed(1)} %`;
    const sure = event.sure || [];
    const settled = !event.competing;
    const mean = sure.length ? sure.reduce((a, b) => a + b, 0) / sure.length : null;
    this.facts.sure.textContent = settled ? "settled" : mean === null ? "–" : `${Math.round(100 * mean)} %`;
    this.phase.textContent = settled
      ? "The winners are known; now only they learn."
      : "Units compete for the task; those that win light up.";
    this.competition?.tell(event.winners, { settled, sure });
    const tenth = Math.floor(10 * share);
    // What is told again after a reload or a lost connection may be over by now.
    if (tenth > this.spoken && this.current?.state === "running") {
      this.spoken = tenth;
      speak(`${Math.round(100 * share)} percent, ${duration(event.seconds_left)} left, ${this.facts.right.textContent} right.`);
    }
  }

  validates(event) {
    this.facts.held.textContent = `${event.accuracy.toFixed(1)} %`;
  }

  leaves(event) {
    say(this.aside, `${count(event.files.length, "picture was", "pictures were")} left out, the first because ${event.files[0].why.replace(/\.$/, "")}.`);
  }

  ends(event) {
    this.progress(1);
    this.facts.sure.textContent = "settled";
    this.competition?.tell(null, { settled: true });
    if (event.grown?.some((more) => more > 0)) say(this.aside, "The network grew to make room for it; what it knew is as it was.");
  }

  progress(share) {
    this.bar.firstElementChild.style.width = `${100 * share}%`;
    this.bar.setAttribute("aria-valuenow", Math.round(100 * share));
  }

  /** The training that runs, or how the last one ended. */
  showEnd() {
    const job = this.current;
    this.live.hidden = !job || job.state === "cancelled";
    if (!job) return;
    this.live.dataset.state = job.state;
    this.cancel.hidden = !OPEN.includes(job.state);
    this.next.hidden = job.state !== "done";
    this.facts.left.nextElementSibling.textContent = job.state === "done" ? "to learn it" : "time left";
    const again = job.again ? " again" : "";
    this.title.textContent = { running: `Learning ${job.task}${again}`, done: `Learned ${job.task}${again}`, failed: `${job.task} was not learned`, queued: job.task, cancelled: job.task }[job.state];
    if (job.state === "failed") {
      const as = "The model is as it was.";
      this.phase.textContent = job.sentence.includes(as) ? job.sentence : `${job.sentence} ${as}`;
      speak(this.phase.textContent);
    }
    if (job.state === "done") {
      const task = this.state.tasks.find((each) => each.name === job.task);
      if (task) {
        this.facts.left.textContent = duration(task.seconds);
        this.facts.held.textContent = `${task.accuracy.toFixed(1)} %`;
        this.phase.textContent = `${task.accuracy.toFixed(1)} % of ${count(task.held, "held-out picture")} are right. Its ticket has ${count(task.weights, "weight")} in ${bytes(task.bytes)}.`;
        if (this.told !== job.id) speak(`Learned ${job.task}. ${this.phase.textContent}`);
        this.told = job.id;
      }
    }
  }
}
