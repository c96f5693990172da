// A video file as square pictures, taken in the browser; the video itself is not uploaded.

import { PICTURE_SIDE } from "./camera.js";
import { squared } from "./pad.js";

const RATE = 4; // pictures for each second of the video
const MOST = 120; // pictures of a video; those of a longer one are further apart

export const isVideo = (file) => file.type.startsWith("video/");

const event = (node, name) => new Promise((done, fail) => {
  node.addEventListener(name, done, { once: true });
  node.addEventListener("error", fail, { once: true });
});

/** Pictures of a video as files, evenly spread over its time. */
export async function* frames(file) {
  const video = document.createElement("video");
  Object.assign(video, { muted: true, playsInline: true, preload: "auto", src: URL.createObjectURL(file) });
  try {
    await event(video, "loadeddata");
    const seconds = await duration(video);
    const count = Math.min(MOST, Math.max(1, Math.floor(seconds * RATE)));
    for (let number = 0; number < count; number += 1) {
      video.currentTime = (seconds * (number + 0.5)) / count;
      await event(video, "seeked");
      const picture = await squared(video, video.videoWidth, video.videoHeight, PICTURE_SIDE, "image/jpeg");
      yield new File([picture], file.name, { type: picture.type });
    }
  } finally {
    URL.revokeObjectURL(video.src);
  }
}

/** What a browser recorded itself does not say how long it is; seeking to its end finds out. */
async function duration(video) {
  if (Number.isFinite(video.duration)) return video.duration;
  video.currentTime = Number.MAX_SAFE_INTEGER;
  await event(video, "seeked");
  return Number.isFinite(video.duration) ? video.duration : video.currentTime;
}
