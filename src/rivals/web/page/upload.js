// Upload pictures, a few at a time.

import { request } from "./api.js";
import { count, showMessage } from "./dom.js";

const PARALLEL = 3; // uploads

/** Upload [class, file] pairs of a task; returns a message for each file that was refused. */
export async function upload(task, pairs, limit, progress) {
  const waiting = [...pairs];
  const refused = [];
  let done = 0;
  const worker = async () => {
    for (;;) {
      const next = waiting.shift();
      if (!next) return;
      try {
        await send(task, ...next, limit);
      } catch (error) {
        refused.push(error.message);
      }
      done += 1;
      showMessage(progress, pairs.length > 1 ? `${done.toLocaleString("en")} of ${count(pairs.length, "picture")}` : "");
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
  showMessage(progress, "");
  return refused;
}

async function send(task, name, file, limit) {
  if (file.size > limit) {
    const size = (file.size / 2 ** 20).toFixed(1);
    throw new Error(`${file.name} has ${size} MB, but the limit is ${limit / 2 ** 20} MB; make it smaller.`);
  }
  await request("POST", "picture", { task, name, filename: file.name }, file);
}
