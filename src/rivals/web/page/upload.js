// Upload pictures, a few at a time; a video becomes pictures first.

import { request } from "./api.js";
import { showMessage } from "./dom.js";
import { decimal, t } from "./language.js";
import { frames, isVideo } from "./video.js";

const PARALLEL = 3; // uploads

/** Upload [class, file] pairs of a task: how many were added, and a message for each that was refused. */
export async function upload(task, pairs, limit, progress) {
  const refused = [];
  const waiting = [];
  for (const [name, file] of pairs) {
    if (!isVideo(file)) { waiting.push([name, file]); continue; }
    showMessage(progress, t("video.reading", { name: file.name }));
    try {
      for await (const frame of frames(file)) waiting.push([name, frame]);
    } catch {
      refused.push(t("video.unreadable", { name: file.name }));
    }
  }
  const all = waiting.length;
  let [done, added] = [0, 0];
  const worker = async () => {
    for (;;) {
      const next = waiting.shift();
      if (!next) return;
      try {
        await send(task, ...next, limit);
        added += 1;
      } catch (error) {
        refused.push(error.message);
      }
      done += 1;
      showMessage(progress, all > 1 ? t("upload.progress", { done, n: all }) : "");
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
  showMessage(progress, "");
  return { added, refused };
}

async function send(task, name, file, limit) {
  if (file.size > limit) {
    throw new Error(t("upload.large", { name: file.name, size: decimal(file.size / 2 ** 20, 1), limit: limit / 2 ** 20 }));
  }
  await request("POST", "picture", { task, name, filename: file.name }, file);
}
