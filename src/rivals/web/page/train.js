// Step 2: start a training, show its progress and the winners of each block, list the queue.

import { request } from "./api.js";
import { accuracyNodes, accuracyText, announce, byId, bytes, count, duration, h, icon, keyed, showMessage } from "./dom.js";
import { WinnerMap } from "./winner_map.js";

const OPEN = ["queued", "running"];

export class Train {
  constructor(collect) {
    this.collect = collect;
    this.job = null; // the id of the training whose events are shown
    this.summary = h("p.note");
    this.minutes = h("input", { type: "number", min: "0.1", step: "any", inputMode: "decimal", id: "minutes", placeholder: "no limit" });
    this.button = h("button.primary.large", { type: "button", id: "start", onclick: () => this.start() }, "Train");
    this.error = h("p.error", { role: "alert", hidden: true });
    this.live = h("div.live", { hidden: true });
    this.queue = h("ul.queue", { "aria-label": "Queued trainings" });
    byId("train").append(
      h("div.row.spread", {}, this.summary,
        h("div.row", {}, h("label.field.inline", {}, h("span", {}, "Time limit in minutes"), this.minutes), this.button)),
      this.error, this.live, this.queue);
    this.build();
  }

  build() {
    this.title = h("h3");
    this.cancel = h("button.quiet", { type: "button", onclick: () => this.stop(this.job) }, "Cancel");
    this.next = h("button", { type: "button", hidden: true, onclick: () => { location.hash = "try"; } }, icon("try"), "Try it");
    this.bar = h("div.bar", { role: "progressbar", "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100 }, h("i"));
    const fact = (name) => {
      const [value, label] = [h("b", {}, "–"), h("span", {}, name)];
      return { value, label, node: h("div.fact", {}, value, label) };
    };
    this.time = fact("time left");
    this.accuracy = fact("training accuracy");
    this.heldOut = fact("held-out accuracy");
    this.units = fact("winning units");
    this.facts = [this.time, this.accuracy, this.heldOut, this.units];
    this.phase = h("p.phase");
    this.aside = h("p.note", { hidden: true });
    this.learners = h("ul.learners", { "aria-label": "Accuracy of what was kept and of simpler learners" });
    this.sentences = h("div.sentences");
    this.adviceNode = h("div.advice", { hidden: true }, this.learners, this.sentences);
    this.map = h("div.map");
    this.live.append(h("div.row.spread", {}, this.title, this.cancel, this.next), this.bar,
      h("div.facts", {}, ...this.facts.map((each) => each.node)), this.phase, this.adviceNode, this.aside, this.map);
  }

  async start() {
    showMessage(this.error, "");
    try {
      const task = this.collect.selected;
      if (task === null) throw new Error("Collect pictures first.");
      await request("POST", "training", { task, minutes: this.minutes.value || null });
    } catch (error) {
      showMessage(this.error, error.message);
    }
  }

  async stop(number) {
    try {
      await request("DELETE", "training", { number });
    } catch (error) {
      showMessage(this.error, error.message);
    }
  }

  update(state) {
    this.state = state;
    const task = this.collect.current;
    const { classes, pictures } = state.minimum;
    const tooFew = task && (task.classes.length < classes || task.classes.some((each) => each.count < pictures));
    const total = task ? task.classes.reduce((sum, each) => sum + each.count, 0) : 0;
    const known = state.tasks.some((each) => each.name === this.collect.selected);
    this.summary.textContent = !task
      ? "Name a task and add at least two classes."
      : tooFew
        ? `At least ${classes} classes with ${pictures} pictures each are needed; twenty or more are better.`
        : `${task.task}: ${count(task.classes.length, "class", "classes")}, ${count(total, "picture")}.`;
    this.button.disabled = !task || tooFew || Boolean(this.collect.busy);
    this.button.textContent = known ? "Train again" : "Train";
    this.showQueue();
    this.showJob();
  }

  showQueue() {
    const queued = this.state.trainings.filter((job) => job.state === "queued");
    keyed(this.queue, queued, (job) => String(job.id),
      (job) => h("li", {}, h("span", {}, `${job.task} is in the queue`),
        h("button.quiet", { type: "button", onclick: () => this.stop(job.id) }, "Cancel")));
  }

  /** An event of the training, as `rivals learn --json` prints it. */
  handle(event) {
    if (event.job !== this.job) this.reset(event.job);
    const handlers = { reading: () => this.onReading(), begins: () => this.onBegin(event), step: () => this.onStep(event),
      validation: () => this.onValidation(event), left_out: () => this.onLeftOut(event), done: () => this.onDone(event) };
    handlers[event.event]?.();
    this.showJob();
  }

  reset(job) {
    if (job !== this.job) showMessage(this.aside, "");
    this.job = job;
    this.winnerMap = null;
    this.showAdvice(null);
    this.showTrained(true);
    this.competed = false; // whether this training has had a competition
    this.announced = -1;
    this.map.replaceChildren();
    for (const { value } of this.facts) value.textContent = "–";
    this.progress(0);
  }

  get current() {
    return this.state?.trainings.find((job) => job.id === this.job) || null;
  }

  onReading() {
    this.phase.textContent = "Reading the pictures.";
  }

  onBegin(event) {
    this.reset(event.job);
    this.layers = event.layers;
    this.phase.textContent = "Training starts.";
    if (event.steps === 0) return this.showTrained(false); // a head in closed form
    this.winnerMap = new WinnerMap(event.layers);
    this.map.replaceChildren(this.winnerMap.node);
    this.winnerMap.layout();
  }

  /** Training accuracy and winners, where something is trained. */
  showTrained(trained) {
    this.accuracy.node.hidden = this.units.node.hidden = !trained;
  }

  onStep(event) {
    const share = event.step / event.steps;
    this.progress(share);
    this.time.value.textContent = duration(event.seconds_left);
    if (event.accuracy !== null && event.accuracy !== undefined) this.accuracy.value.textContent = `${event.accuracy.toFixed(1)} %`;
    this.showUnits(event.competing, event.confidence || []);
    this.phase.textContent = this.phaseText(event.competing);
    this.winnerMap?.update(event.winners, { competing: event.competing, confidence: event.confidence });
    const tenth = Math.floor(10 * share);
    // After a reload the history is sent again; it is not announced if the training has ended.
    if (tenth > this.announced && this.current?.state === "running") {
      this.announced = tenth;
      announce(`${Math.round(100 * share)} percent, ${duration(event.seconds_left)} left, training accuracy ${this.accuracy.value.textContent}.`);
    }
  }

  phaseText(competing) {
    this.competed ||= competing;
    if (competing) return "Units are competing: the large dot of a column leads its block.";
    if (this.competed) return "The competition has ended: the large dot of each column won its block, and only winners are trained.";
    if (this.current?.again) return "The task keeps its winners, the large dots. Only they are trained.";
    return "One winner in each block, the large dot of a column, was drawn before training. Only winners are trained.";
  }

  showUnits(competing, confidence) {
    const sum = (values) => values.reduce((a, b) => a + b, 0);
    if (competing) {
      this.units.label.textContent = "mean posterior of the leading units";
      this.units.value.textContent = confidence.length ? `${Math.round((100 * sum(confidence)) / confidence.length)} %` : "–";
    } else if (this.layers) {
      const [blocks, units] = [sum(this.layers.map((each) => each.blocks)), sum(this.layers.map((each) => each.blocks * each.units))];
      this.units.label.textContent = "winning units";
      this.units.value.textContent = `${blocks.toLocaleString("en")} of ${units.toLocaleString("en")}`;
    }
  }

  onValidation(event) {
    this.showHeldOut(event);
  }

  showHeldOut({ accuracy, interval, held }) {
    this.heldOut.value.replaceChildren(...accuracyNodes(accuracy, interval));
    this.heldOut.label.textContent = held ? `on ${count(held, "held-out picture")}` : "held-out accuracy";
  }

  onLeftOut(event) {
    showMessage(this.aside, `${count(event.files.length, "picture was", "pictures were")} left out; the first: ${event.files[0].why.replace(/\.$/, "")}.`);
  }

  onDone(event) {
    this.progress(1);
    this.winnerMap?.update(null);
    this.showAdvice(event.advice);
    if (event.kept === false) showMessage(this.aside, "The accuracy did not improve, so the model was left as it was.");
    else if (event.grown?.some((more) => more > 0)) showMessage(this.aside, "The network grew, since too few units were free. Earlier tasks did not change.");
  }

  /** How good simpler learners are, which classes are mixed up, what more pictures would bring; null: not known. */
  showAdvice(advice) {
    this.advice = advice || null;
    const learners = advice?.learners || [];
    this.learners.replaceChildren(...learners.map(([name, accuracy], place) => {
      const filled = h("i");
      filled.style.width = `${accuracy}%`;
      return h("li", {}, h("span", {}, place ? name : `${name} (kept)`), h("div.bar", {}, filled), h("span", {}, `${accuracy.toFixed(1)} %`));
    }));
    this.sentences.replaceChildren(...this.adviceTexts().map((text) => h("p", {}, text)));
    this.adviceNode.hidden = !learners.length;
  }

  /** The sentences that the bars do not show. */
  adviceTexts() {
    const { confused, more_pictures: more } = this.advice?.sentences || {};
    const { compared, tested } = this.advice || {};
    const some = compared < tested && `Learners are compared on ${count(compared, "picture")}.`;
    return [some, confused, more].filter(Boolean);
  }

  progress(share) {
    this.bar.firstElementChild.style.width = `${100 * share}%`;
    this.bar.setAttribute("aria-valuenow", Math.round(100 * share));
  }

  /** The running training, or how the last one ended. */
  showJob() {
    const job = this.current;
    this.live.hidden = !job || job.state === "cancelled";
    if (!job) return;
    this.live.dataset.state = job.state;
    this.cancel.hidden = !OPEN.includes(job.state);
    this.next.hidden = job.state !== "done";
    this.time.label.textContent = job.state === "done" ? "training time" : "time left";
    const again = job.again ? " again" : "";
    this.title.textContent = { running: `Learning ${job.task}${again}`, done: `Learned ${job.task}${again}`, failed: `${job.task} was not learned`, queued: job.task, cancelled: job.task }[job.state];
    if (job.state === "failed") {
      const unchanged = "The model is as it was.";
      this.phase.textContent = job.message.includes(unchanged) ? job.message : `${job.message} ${unchanged}`;
      announce(this.phase.textContent);
    }
    if (job.state === "done") this.showDone(job);
  }

  showDone(job) {
    const task = this.state.tasks.find((each) => each.name === job.task);
    if (!task) return;
    this.time.value.textContent = duration(task.seconds);
    this.showHeldOut(task);
    const crossValidated = this.advice?.cross_validated;
    const how = crossValidated ? `in cross-validation of ${count(task.held, "picture")}` : `on ${count(task.held, "held-out picture")}`;
    if (crossValidated) this.heldOut.label.textContent = `accuracy, ${count(task.held, "picture")} cross-validated`;
    this.phase.textContent = `Accuracy ${accuracyText(task.accuracy, task.interval)} ${how}. The ticket has ${count(task.weights, "weight")} in ${bytes(task.bytes)}.`;
    if (this.finished !== job.id) announce([`Learned ${job.task}.`, this.phase.textContent, ...this.adviceTexts()].join(" "));
    this.finished = job.id;
  }
}
