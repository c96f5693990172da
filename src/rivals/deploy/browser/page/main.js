// The page: three ways to show a picture, one answer.

import { Camera } from "./camera.js";
import { byId, h, icon, percent, showMessage } from "./dom.js";
import { openModel } from "./model.js";
import { Pad } from "./pad.js";
import { ofFile, squareOf } from "./sources.js";

const MOST = 60; // pictures that are answered at once
const TOP = 3; // classes that are shown
const PAUSE = 120; // milliseconds between pictures of the camera, and after a stroke
const NAMES = { camera: "Camera", files: "Pictures", draw: "Draw" };

class Page {
  constructor(model) {
    this.model = model;
    this.camera = new Camera();
    this.pad = new Pad(Math.min(...model.shape.slice(1)), () => this.soon());
    this.view = null;
    this.turn = 0; // of the newest question: older answers come too late
    this.held = false;
    this.batch = 0; // of the newest files
    this.describe();
    this.listen();
    const order = model.shape[0] === 1 ? ["draw", "files", "camera"] : ["files", "camera", "draw"];
    byId("tabs").append(...order.map((name) => h("button.chip", { type: "button", onclick: () => this.show(name) }, icon(name), NAMES[name])));
    this.order = order;
    this.show(order[0]);
  }

  describe() {
    const { tasks, card, bytes, shape } = this.model;
    const names = tasks.map((each) => each.task).join(", ");
    byId("model").textContent = names;
    document.title = `${names} · rivals`;
    byId("known").append(...tasks.flatMap((each) => [h("dt", {}, each.task), h("dd", {}, each.classes.join(", "))]));
    const accuracy = card.accuracy === null ? "" : `${card.accuracy.toFixed(1)} % right on held-out pictures. `;
    const size = `${Math.max(1, Math.round(bytes / 1000)).toLocaleString("en")} KB`;
    byId("facts").textContent = `${accuracy}The model has ${size} and sees ${shape[2]} × ${shape[1]} pixels${shape[0] === 1 ? " of grey" : ""}.`;
  }

  listen() {
    byId("film").append(this.camera.video);
    byId("pad").append(this.pad.canvas);
    byId("freeze").addEventListener("click", () => this.hold(!this.held));
    byId("turn").addEventListener("click", () => this.film(() => this.camera.turn()));
    byId("choose").addEventListener("click", () => byId("chosen").click());
    byId("chosen").addEventListener("change", ({ target }) => { this.askFiles([...target.files]); target.value = ""; });
    byId("paper").checked = this.model.card.paper === "black";
    byId("paper").addEventListener("change", () => this.wipe());
    byId("clear").addEventListener("click", () => this.wipe());
    addEventListener("paste", ({ clipboardData }) => this.askFiles([...clipboardData.files]));
    addEventListener("dragover", (event) => { event.preventDefault(); byId("input").classList.add("over"); });
    addEventListener("dragleave", (event) => { if (!event.relatedTarget) byId("input").classList.remove("over"); });
    addEventListener("drop", (event) => {
      event.preventDefault();
      byId("input").classList.remove("over");
      this.askFiles([...event.dataTransfer.files]);
    });
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.camera.stop(); else if (this.view === "camera" && !this.held) this.film(); });
  }

  show(view) {
    this.view = view;
    [...byId("tabs").children].forEach((chip, place) => chip.setAttribute("aria-pressed", String(this.order[place] === view)));
    for (const name of this.order) byId(name).hidden = name !== view;
    byId("spoken").setAttribute("aria-live", view === "camera" ? "off" : "polite"); // it changes all the time
    this.camera.stop();
    this.blank();
    if (view === "camera") this.hold(false);
    if (view === "draw") this.wipe();
  }

  // Camera -----------------------------------------------------------------------------------------

  hold(held) {
    this.held = held;
    byId("freeze").textContent = held ? "Go on" : "Hold";
    byId("spoken").setAttribute("aria-live", held ? "polite" : "off");
    if (held) this.camera.video.pause();
    else this.film();
  }

  /** Start the camera, or change it, and answer what it sees until it stops. */
  async film(start = () => this.camera.start()) {
    try {
      await start();
      byId("turn").hidden = !(await this.camera.several());
    } catch (error) {
      if (this.view === "camera") showMessage(byId("error"), error.message);
      return;
    }
    if (this.view !== "camera") this.camera.stop();
    const { stream, video } = this.camera;
    while (stream && this.camera.stream === stream && !this.held) {
      if (this.camera.ready) await this.ask(squareOf(video, video.videoWidth, video.videoHeight));
      await new Promise((done) => setTimeout(done, PAUSE));
    }
  }

  // Drawing ----------------------------------------------------------------------------------------

  wipe() {
    clearTimeout(this.waiting);
    this.pad.clear(byId("paper").checked);
    this.blank();
  }

  soon() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.ask(squareOf(this.pad.canvas, this.pad.canvas.width, this.pad.canvas.height)), PAUSE);
  }

  // Files ------------------------------------------------------------------------------------------

  async askFiles(files) {
    if (!files.length) return;
    this.show("files");
    const batch = ++this.batch;
    const list = byId("answers");
    for (const image of list.querySelectorAll("img")) URL.revokeObjectURL(image.src);
    list.replaceChildren();
    if (files.length > MOST) showMessage(byId("error"), `These are ${files.length} pictures; the first ${MOST} are answered.`);
    for (const file of files.slice(0, MOST)) {
      if (batch !== this.batch) return; // others were chosen meanwhile
      const result = h("span", {}, "…");
      const image = h("img", { alt: "", src: URL.createObjectURL(file), onerror: (event) => event.target.classList.add("broken") });
      list.append(h("li", {}, image, h("span.file", {}, file.name), result));
      try {
        const source = await ofFile(file);
        const answer = await this.ask(source).finally(source.close);
        result.replaceChildren(...(answer ? [h("b", {}, answer.choices[0].label), ` ${percent(answer.choices[0].confidence)}`] : ["–"]));
      } catch (error) {
        result.textContent = error.message;
        result.className = "error";
      }
    }
  }

  // Answers ----------------------------------------------------------------------------------------

  async ask(source) {
    const turn = ++this.turn;
    try {
      const answer = await this.model.answer(source);
      if (turn === this.turn) this.tell(answer);
      return answer;
    } catch (error) {
      showMessage(byId("error"), error.message);
      return null;
    }
  }

  tell({ task, choices, milliseconds }) {
    byId("label").textContent = choices[0].label;
    const named = this.model.tasks.length > 1 ? `task ${task} · ` : "";
    byId("summary").textContent = `Confidence ${percent(choices[0].confidence)} · ${named}${milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms`;
    byId("choices").replaceChildren(...choices.slice(0, TOP).map(({ label, confidence }) => {
      const bar = h("i");
      bar.style.width = `${100 * confidence}%`;
      return h("li", {}, h("span", { title: label }, label), h("div.bar", {}, bar), h("span", {}, percent(confidence)));
    }));
  }

  blank() {
    this.turn += 1;
    showMessage(byId("error"), "");
    byId("label").textContent = "–";
    byId("choices").replaceChildren();
    byId("summary").textContent = "No picture yet.";
  }
}

/** Kept on this device by the service worker, where browsers allow one. */
async function keep() {
  if (!isSecureContext) {
    byId("kept").textContent = "Over plain http from another machine, browsers allow neither the camera nor use without a network; serve the page over https.";
  } else if (navigator.serviceWorker) {
    await navigator.serviceWorker.register("sw.js");
    await navigator.serviceWorker.ready;
    byId("kept").textContent = "Kept on this device: this page also opens without a network. On a phone, add it to the home screen.";
  }
}

const start = byId("start");
try {
  const model = await openModel((share) => { if (!start.className) start.textContent = `Opening the model … ${Math.round(100 * share)} %`; });
  new Page(model);
  start.hidden = true;
  document.body.classList.add("ready");
  keep().catch(() => {}); // a browser without room or in private mode: the page works all the same
} catch (error) {
  start.className = "error";
  start.textContent = error.message;
}
