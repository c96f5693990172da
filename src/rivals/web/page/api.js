// Requests to the server: arguments in the query, a picture as the body; errors carry a message.

import { t, told } from "./language.js";

export class RequestError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status; // of HTTP; 0: there was no answer
  }
}

export async function request(method, path, parameters = {}, body = null) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined) query.set(key, value);
  }
  let response;
  try {
    response = await fetch(`/api/${path}?${query}`, { method, body });
  } catch {
    throw new RequestError(t("server.silent"));
  }
  if (response.ok) return response;
  const content = await response.json().catch(() => ({}));
  throw new RequestError(content.message ? told(content.message) : t("server.refused", { status: response.status }), response.status);
}

export const requestJson = async (...parameters) => (await request(...parameters)).json();

export const address = (path, parameters) => `/api/${path}?${new URLSearchParams(parameters)}`;

/** Subscribe to events; continues where it stopped after a lost connection or a hidden tab. */
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
      timer = setTimeout(reconnect, 700);
    });
  };
  const reconnect = async () => {
    try {
      await request("GET", "state");
      open();
    } catch (error) {
      lost(error.message);
      timer = setTimeout(reconnect, 1500);
    }
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { source?.close(); source = null; } else open();
  });
  open();
}
