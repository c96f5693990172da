// Step 2: start a training, show its progress and the winners of each block, list the queue.

import { request } from "./api.js";
import { accuracyNodes, accuracyText, announce, byId, bytes, duration, h, icon, keyed, showMessage } from "./dom.js";
import { decimal, known, t, told } from "./language.js";
import { curve, mistaken } from "./results.js";
import { WinnerMap } from "./winner_map.js";

const OPEN = ["queued", "running"];

export class Train {
  constructor(collect) {
    this.collect = collect;
    this.job = null; // the id of the training whose events are shown
    this.summary = h("p.note");
    this.minutes = h("input", { type: "number", min: "0.1", step: "any", inputMode: "decimal", id: "minutes", placeholder: t("train.unlimited") });
    this.button = h("button.primary.large", { type: "button", id: "start", onclick: () => this.start() }, t("train.start"));
    this.anew = h("input", { type: "checkbox", id: "anew" });
    this.anewText = h("span", {}, t("train.anew"));
    this.anewField = h("label.check", { hidden: true }, this.anew, this.anewText);
    this.error = h("p.error", { role: "alert", hidden: true });
    this.live = h("div.live", { hidden: true });
    this.queue = h("ul.queue", { "aria-label": t("train.queue") });
    byId("train").append(
      h("div.row.spread", {}, this.summary,
        h("div.row", {}, h("label.field.inline", {}, h("span", {}, t("train.minutes")), this.minutes), this.button)),
      this.anewField, this.error, this.live, this.queue);
    this.build();
  }

  build() {
    this.title = h("h3");
    this.cancel = h("button.quiet", { type: "button", onclick: () => this.stop(this.job) }, t("cancel"));
    this.next = h("button", { type: "button", hidden: true, onclick: () => { location.hash = "try"; } }, icon("try"), t("train.try"));
    this.bar = h("div.bar", { role: "progressbar", "aria-label": t("train.progress"), "aria-valuemin": 0, "aria-valuemax": 100 }, h("i"));
    const fact = (name) => {
      const [value, label] = [h("b", {}, t("none")), h("span", {}, name)];
      return { value, label, node: h("div.fact", {}, value, label) };
    };
    this.time = fact(t("fact.left"));
    this.accuracy = fact(t("fact.training"));
    this.heldOut = fact(t("fact.held"));
    this.units = fact(t("fact.units"));
    this.facts = [this.time, this.accuracy, this.heldOut, this.units];
    this.phase = h("p.phase");
    this.aside = h("p.note", { hidden: true });
    this.learners = h("ul.learners", { "aria-label": t("advice.learners") });
    this.compared = h("p.note");
    this.adviceNode = h("details", { hidden: true }, h("summary", {}, t("advice.learners")), this.learners, this.compared);
    this.results = h("div.results", { hidden: true });
    this.map = h("div.map");
    this.live.append(h("div.row.spread", {}, this.title, this.cancel, this.next), this.bar,
      h("div.facts", {}, ...this.facts.map((each) => each.node)), this.phase, this.aside, this.results, this.adviceNode, this.map);
  }

  async start() {
    showMessage(this.error, "");
    try {
      const task = this.collect.selected;
      if (task === null) throw new Error(t("train.nothing"));
      await request("POST", "training", { task, minutes: this.minutes.value || null, anew: !this.anewField.hidden && this.anew.checked });
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
    const learned = state.tasks.some((each) => each.name === this.collect.selected);
    this.summary.textContent = !task
      ? t("train.name")
      : tooFew
        ? t("train.few", { classes, pictures })
        : t("train.ready", { task: task.task, classes: t("classes", { n: task.classes.length }), pictures: t("pictures", { n: total }) });
    this.button.disabled = !task || tooFew || Boolean(this.collect.busy);
    this.showAnew(task, state.tasks.find((each) => each.name === this.collect.selected));
    this.button.textContent = t(learned ? "train.again" : "train.start");
    this.showQueue();
    this.showStart();
    this.showJob();
  }

  get running() {
    return this.state?.trainings.find((job) => job.state === "running");
  }

  /** A training is shown from its start on; its first event comes seconds later. */
  showStart() {
    if (!this.running || this.running.id === this.job) return;
    this.reset(this.running.id);
    this.phase.textContent = t("phase.starts");
  }

  /**
   * Whether a known task is learned anew. It must be where its classes have changed, and is where the
   * pictures that it was learned from are among these: they would count twice.
   */
  showAnew(task, learned) {
    this.anewField.hidden = !task || !learned;
    if (!task || !learned) return;
    const names = (classes) => JSON.stringify([...classes].sort());
    const changed = names(task.classes.map((each) => each.name)) !== names(learned.classes);
    const all = task.classes.reduce((sum, each) => sum + each.count, 0) === learned.images;
    const here = this.state.trainings.some((job) => job.task === task.task && job.state === "done");
    const key = JSON.stringify([task.task, changed, task.edited, here]);
    if (this.anewKey !== key) this.anew.checked = changed || task.edited || here || all;
    this.anewKey = key;
    this.anew.disabled = changed;
    this.anewText.textContent = t(changed ? "train.anew.why" : "train.anew");
  }

  showQueue() {
    const queued = this.state.trainings.filter((job) => job.state === "queued");
    keyed(this.queue, queued, (job) => String(job.id),
      (job) => h("li", {}, h("span", {}, t("train.queued", { task: job.task })),
        h("button.quiet", { type: "button", onclick: () => this.stop(job.id) }, t("cancel"))));
  }

  /** An event of the training, as `rivals learn --json` prints it. */
  handle(event) {
    if (this.running && event.job !== this.running.id) return; // of one that has just ended
    if (event.job !== this.job) this.reset(event.job);
    const handlers = { reading: () => this.onReading(event), begins: () => this.onBegin(event), step: () => this.onStep(event),
      validation: () => this.onValidation(event), mistakes: () => this.onMistakes(event), left_out: () => this.onLeftOut(event), done: () => this.onDone(event) };
    handlers[event.event]?.();
    this.showJob();
  }

  reset(job) {
    if (job !== this.job) showMessage(this.aside, "");
    this.job = job;
    this.winnerMap = null;
    this.showAdvice(null);
    this.mistakes = null;
    this.showResults();
    this.competed = false; // whether this training has had a competition
    this.announced = -1;
    this.map.replaceChildren();
    this.map.hidden = false;
    for (const each of this.facts) this.show(each, null);
    this.progress(0);
  }

  get current() {
    return this.state?.trainings.find((job) => job.id === this.job) || null;
  }

  onReading({ done, of }) {
    this.phase.textContent = done < of ? t("phase.reading", { done, n: of }) : t("phase.learning");
    this.progress(done / of);
  }

  onBegin(event) {
    this.reset(event.job);
    this.layers = event.layers;
    this.phase.textContent = t("phase.starts");
    if (event.steps === 0) return; // a head in closed form: nothing to watch
    this.winnerMap = new WinnerMap(event.layers);
    this.map.replaceChildren(this.winnerMap.node);
    this.winnerMap.layout();
  }

  /** A fact, once it is known. */
  show({ value, node }, ...content) {
    value.replaceChildren(...content.filter((each) => each !== null));
    node.hidden = !value.hasChildNodes();
  }

  onStep(event) {
    const share = event.step / event.steps;
    this.progress(share);
    this.show(this.time, duration(event.seconds_left));
    if (event.accuracy !== null && event.accuracy !== undefined) this.show(this.accuracy, `${decimal(event.accuracy, 1)} %`);
    this.showUnits(event.competing, event.confidence || []);
    this.phase.textContent = this.phaseText(event.competing);
    this.winnerMap?.update(event.winners, event);
    const tenth = Math.floor(10 * share);
    // After a reload the history is sent again; it is not announced if the training has ended.
    if (tenth > this.announced && this.current?.state === "running") {
      this.announced = tenth;
      announce(t("phase.announce", { percent: Math.round(100 * share), left: duration(event.seconds_left), accuracy: this.accuracy.value.textContent }));
    }
  }

  phaseText(competing) {
    this.competed ||= competing;
    if (competing) return t("phase.competing");
    if (this.competed) return t("phase.competed");
    if (this.current?.again) return t("phase.keeps");
    return t("phase.drawn");
  }

  showUnits(competing, confidence) {
    const sum = (values) => values.reduce((a, b) => a + b, 0);
    if (competing) {
      this.units.label.textContent = t("fact.posterior");
      this.show(this.units, confidence.length ? `${Math.round((100 * sum(confidence)) / confidence.length)} %` : null);
    } else if (this.layers) {
      const [blocks, units] = [sum(this.layers.map((each) => each.blocks)), sum(this.layers.map((each) => each.blocks * each.units))];
      this.units.label.textContent = t("fact.units");
      this.show(this.units, t("fact.units.of", { winners: blocks, units }));
    }
  }

  onValidation(event) {
    this.showHeldOut(event);
  }

  showHeldOut({ accuracy, interval, held }) {
    this.show(this.heldOut, ...accuracyNodes(accuracy, interval));
    this.heldOut.label.textContent = held ? t("fact.held.on", { n: held }) : t("fact.held");
  }

  onMistakes(event) {
    this.mistakes = event;
  }

  /** Learning curve, confusion matrix and mistaken pictures of a training that has ended. */
  showResults() {
    const more = this.advice?.more_pictures;
    const parts = more ? [curve(more, this.moreText())] : [];
    if (this.mistakes) parts.push(...mistaken(this.mistakes, this.confusedText(), this.current?.task, (shown) => this.collect.picture.open(shown)));
    this.results.replaceChildren(...parts);
    this.results.hidden = !parts.length;
  }

  onLeftOut(event) {
    showMessage(this.aside, t("done.left-out", { n: event.files.length, why: told(event.files[0].why).replace(/\.$/, "") }));
  }

  onDone(event) {
    this.progress(1);
    for (const each of [this.accuracy, this.units]) this.show(each, null); // of the training
    this.map.hidden = true; // it can be seen among the tasks
    this.showAdvice(event.advice);
    if (event.kept === false) this.mistakes = null;
    this.resultsOf = null;
    this.showResults();
    if (event.kept === false) showMessage(this.aside, t("done.not-better"));
    else if (event.grown?.some((more) => more > 0)) showMessage(this.aside, t("done.grown"));
  }

  /** How good simpler learners are; null: not known. */
  showAdvice(advice) {
    this.advice = advice || null;
    const learners = advice?.learners || [];
    this.learners.replaceChildren(...learners.map(([name, accuracy], place) => {
      const filled = h("i");
      filled.style.width = `${accuracy}%`;
      const words = known(`learner.${name}`, name);
      return h("li", {}, h("span", {}, place ? words : t("advice.kept", { name: words })), h("div.bar", {}, filled), h("span", {}, `${decimal(accuracy, 1)} %`));
    }));
    const { compared, tested } = advice || {};
    this.compared.textContent = compared < tested ? t("advice.compared", { n: compared }) : "";
    this.adviceNode.hidden = !learners.length;
  }

  /** What more pictures would bring. */
  moreText() {
    const more = this.advice?.more_pictures;
    if (!more) return "";
    const points = Math.round(more.gain);
    return t(`advice.${more.verdict === "little" && points < 1 ? "none" : more.verdict}`, { n: points });
  }

  /** Which classes are mixed up. */
  confusedText() {
    const confused = this.advice?.confused;
    if (!confused) return "";
    const [one, other] = confused.classes;
    return t("advice.confused", { one, other, count: confused.count, n: confused.mistakes });
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
    this.time.label.textContent = t(job.state === "done" ? "fact.time" : "fact.left");
    const again = job.again && ["running", "done"].includes(job.state) ? ".again" : "";
    this.title.textContent = ["queued", "cancelled"].includes(job.state) ? job.task : t(`job.${job.state}${again}`, { task: job.task });
    if (job.state === "failed") {
      const said = job.message.includes("The model is as it was."); // by the server
      this.phase.textContent = said ? job.message : `${told(job.message)} ${t("job.unchanged")}`;
      announce(this.phase.textContent);
    }
    if (job.state === "done") this.showDone(job);
  }

  showDone(job) {
    const task = this.state.tasks.find((each) => each.name === job.task);
    if (!task) return;
    if (this.resultsOf !== job.id) this.showResults();
    this.resultsOf = job.id;
    this.show(this.time, duration(task.seconds));
    this.showHeldOut(task);
    if (this.advice?.cross_validated) this.heldOut.label.textContent = t("fact.crossed", { n: task.held });
    this.phase.textContent = t("done.size", { bytes: bytes(task.bytes) });
    if (this.state.tasks.length > 1) this.phase.append(" ", t("done.others"));
    if (this.finished !== job.id) {
      const facts = { task: job.task, accuracy: accuracyText(task.accuracy, task.interval), what: this.heldOut.label.textContent };
      announce([t("done.announce", facts), this.moreText(), this.confusedText()].join(" ").trim());
    }
    this.finished = job.id;
  }
}
