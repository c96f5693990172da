// The model: its card, its file and onnxruntime, loaded once and checked; then pixels in, answers out.

import * as ort from "./ort.js";
import { toPixels } from "./pixels.js";

/** Load everything; `progress` gets the share that is there, 0 to 1. An Error has a sentence. */
export async function openModel(progress) {
  const card = JSON.parse(new TextDecoder().decode(await load("card.json", null, () => {})));
  const [runtime, model] = await Promise.all([
    load("ort.wasm", card.files["ort.wasm"], progress),
    load("model.onnx", card.files["model.onnx"], () => {}),
  ]);
  Object.assign(ort.env.wasm, { numThreads: 1, proxy: false, wasmBinary: runtime });
  const session = await ort.InferenceSession.create(model, { executionProviders: ["wasm"] });
  return new Model(card, session, model.length);
}

class Model {
  constructor(card, session, bytes) {
    Object.assign(this, { card, session, bytes });
    this.tasks = card.tasks ?? [{ task: card.task, classes: card.classes }];
    this.shape = card.input_shape;
    this.queue = Promise.resolve(); // a session answers one picture after the other
  }

  /** Task, milliseconds, and the classes with their confidence, the most likely first. */
  answer(source) {
    this.queue = this.queue.catch(() => {}).then(() => this.run(source));
    return this.queue;
  }

  async run(source) {
    const start = performance.now();
    const pixels = toPixels(source, this.shape, this.card.preprocessing.scale);
    const images = new ort.Tensor("uint8", pixels, [1, ...this.shape]);
    const found = await this.session.run({ images });
    const { task, classes, shares } = found.scores ? this.ofTicket(found) : this.ofAll(found);
    const choices = classes
      .map((label, place) => ({ label, confidence: shares[place] }))
      .sort((one, other) => other.confidence - one.confidence);
    if (!choices.every((each) => Number.isFinite(each.confidence))) throw new Error("The model answers with numbers that are not finite; export it again.");
    return { task, choices, milliseconds: performance.now() - start };
  }

  ofTicket({ scores }) {
    const { task, classes } = this.tasks[0];
    return { task, classes, shares: softmax([...scores.data]) };
  }

  /** Of all tasks the one that is named. Its classes have probabilities of their own, or all classes have some together. */
  ofAll({ task, probabilities }) {
    const number = Number(task.data[0]);
    if (this.card.familiar) {
      const classes = this.tasks.flatMap((each) => each.classes);
      return { task: this.tasks[number].task, classes, shares: [...probabilities.data] };
    }
    const first = this.tasks.slice(0, number).reduce((sum, each) => sum + each.classes.length, 0);
    const named = this.tasks[number];
    return { ...named, shares: [...probabilities.data.slice(first, first + named.classes.length)] };
  }
}

function softmax(scores) {
  const most = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - most));
  const sum = powers.reduce((one, other) => one + other, 0);
  return powers.map((power) => power / sum);
}

/** A file of this folder, with the checksum that its card has. */
async function load(name, checksum, progress) {
  const response = await fetch(name).catch(() => null);
  if (!response?.ok) throw new Error(`${name} could not be loaded; copy the whole folder to the server.`);
  const length = Number(response.headers.get("Content-Length")) || 0;
  const parts = [];
  let size = 0;
  const reader = response.body.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    parts.push(part.value);
    size += part.value.length;
    if (length) progress(Math.min(1, size / length));
  }
  const bytes = new Uint8Array(await new Blob(parts).arrayBuffer());
  if (checksum && crypto.subtle) { // which browsers have at https and localhost
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    const digits = [...digest].map((each) => each.toString(16).padStart(2, "0")).join("");
    if (digits !== checksum) throw new Error(`${name} was altered or is not complete; export it again, or copy it anew.`);
  }
  return bytes;
}
