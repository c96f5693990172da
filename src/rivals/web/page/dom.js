// Helpers to build the page. Text is always inserted as text, never as markup.

import { decimal, t } from "./language.js";

/** An element: h("p.note", {id: "x"}, "text", child). Properties that start with "on" are event listeners. */
export function h(what, properties = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key in node && key !== "list") node[key] = value;
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

export const byId = (id) => document.getElementById(id);

/** Children of `parent` for `items`, each created once and kept by its key, so that it keeps the focus. */
export function keyed(parent, items, key, make, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let before = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let child = old.get(name);
    if (child) old.delete(name);
    else {
      child = make(item);
      child.dataset.key = name;
    }
    if (update) update(child, item);
    if (child === before) before = before.nextElementSibling;
    else parent.insertBefore(child, before);
  }
  for (const child of old.values()) child.remove();
}

/** Show a message in `node`; an empty one hides it. */
export function showMessage(node, message) {
  node.textContent = message || "";
  node.hidden = !message;
}

/** Announce to a screen reader what others can see. */
export function announce(message) {
  const node = byId("announcements");
  if (node.textContent !== message) node.textContent = message;
}

export const percent = (share) => `${decimal(100 * share, share >= 0.9995 || share === 0 ? 0 : 1)} %`;

/**
 * An accuracy in percent and its 95 % interval: ["75 %", "± 9"], or ["100 %", "(34 to 100)"] near
 * 0 and 100 %, where the interval is not symmetric.
 */
export function accuracyParts(accuracy, interval) {
  if (!interval) return [`${decimal(accuracy, 1)} %`, ""];
  const [low, high] = interval;
  const half = (high - low) / 2;
  const digits = half < 1 ? 1 : 0;
  const symmetric = accuracy - half >= 0 && accuracy + half <= 100;
  const range = symmetric ? `± ${decimal(half, digits)}` : t("interval", { low: decimal(low, digits), high: decimal(high, digits) });
  return [`${decimal(accuracy, digits)} %`, range];
}

export const accuracyText = (accuracy, interval) => accuracyParts(accuracy, interval).join(" ").trim();

/** The same for a large figure: the interval is smaller. */
export function accuracyNodes(accuracy, interval) {
  const [value, range] = accuracyParts(accuracy, interval);
  return range ? [`${value} `, h("small", {}, range)] : [value];
}

export function bytes(number) {
  if (number < 1000) return `${number} B`;
  const [size, unit] = number < 1e6 ? [number / 1e3, "kB"] : [number / 1e6, "MB"];
  return `${decimal(size, size < 10 ? 1 : 0)} ${unit}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return t("none");
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return t("seconds", { seconds: whole });
  if (whole < 3600) return t("minutes", { minutes: Math.floor(whole / 60), seconds: String(whole % 60).padStart(2, "0") });
  return t("hours", { hours: Math.floor(whole / 3600), minutes: Math.round((whole % 3600) / 60) });
}

/** Accept files that are dropped on `node`; `handle` gets the DataTransfer. */
export function acceptDrops(node, handle) {
  let depth = 0;
  const mark = (on) => node.classList.toggle("over", on);
  node.addEventListener("dragenter", (event) => { event.preventDefault(); depth += 1; mark(true); });
  node.addEventListener("dragleave", () => { depth -= 1; if (depth <= 0) { depth = 0; mark(false); } });
  node.addEventListener("dragover", (event) => event.preventDefault());
  node.addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation();
    depth = 0;
    mark(false);
    handle(event.dataTransfer);
  });
}
