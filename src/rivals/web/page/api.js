// Talking to the server: words in the address, a picture as the body, one sentence when it fails.

export class Mistake extends Error {}

export async function ask(method, path, words = {}, body = null) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(words)) {
    if (value !== null && value !== undefined) query.set(key, value);
  }
  let answer;
  try {
    answer = await fetch(`/api/${path}?${query}`, { method, body });
  } catch {
    throw new Mistake("The server does not answer; start it again with rivals serve.");
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw new Mistake(told.sentence || `The server refused this (${answer.status}).`);
}

export const askJson = async (...words) => (await ask(...words)).json();

export const address = (path, words) => `/api/${path}?${new URLSearchParams(words)}`;

/** Follow what happens; goes on where it stopped after a lost connection or a hidden tab. */
export function follow({ state, training, lost }) {
  let source = null;
  let last = "";
  let timer = 0;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(address("events", last ? { last } : {}));
    for (const kind of ["model", "state"]) {
      source.addEventListener(kind, (event) => {
        clearTimeout(timer);
        lost("");
        state(JSON.parse(event.data));
      });
    }
    source.addEventListener("training", (event) => {
      last = event.lastEventId;
      training(JSON.parse(event.data));
    });
    source.addEventListener("error", () => {
      source.close();
      source = null;
      clearTimeout(timer);
      timer = setTimeout(again, 700);
    });
  };
  const again = async () => {
    try {
      await ask("GET", "state");
      open();
    } catch (mistake) {
      lost(mistake.message);
      timer = setTimeout(again, 1500);
    }
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { source?.close(); source = null; } else open();
  });
  open();
}
