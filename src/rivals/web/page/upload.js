// Pictures on their way to the server, few at a time.

import { ask } from "./api.js";
import { count, say } from "./dom.js";

const AT_ONCE = 3;

/** Send [class, file] pairs of a task; gives a sentence for each file that was refused. */
export async function upload(task, pairs, most, progress) {
  const waiting = [...pairs];
  const refused = [];
  let done = 0;
  const work = async () => {
    for (;;) {
      const next = waiting.shift();
      if (!next) return;
      try {
        await send(task, ...next, most);
      } catch (mistake) {
        refused.push(mistake.message);
      }
      done += 1;
      say(progress, pairs.length > 1 ? `${done.toLocaleString("en")} of ${count(pairs.length, "picture")}` : "");
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  say(progress, "");
  return refused;
}

async function send(task, name, file, most) {
  if (file.size > most) {
    const size = (file.size / 2 ** 20).toFixed(1);
    throw new Error(`${file.name} has ${size} MB, and ${most / 2 ** 20} MB are the most; make it smaller.`);
  }
  await ask("POST", "picture", { task, name, said: file.name }, file);
}
