// Small words for building the page. Text is always text: nothing from outside becomes markup.

/** An element: h("p.note", {id: "x"}, "text", child). Properties that start with "on" listen. */
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

/** Children of `parent` for `items`, each made once and kept by its key, so that focus stays. */
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

/** One sentence, where it belongs; none hides it. */
export function say(node, sentence) {
  node.textContent = sentence || "";
  node.hidden = !sentence;
}

/** Tell a screen reader something that others see. */
export function speak(sentence) {
  const node = byId("spoken");
  if (node.textContent !== sentence) node.textContent = sentence;
}

export const count = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? one : many || one + "s"}`;
export const percent = (share) => `${(100 * share).toFixed(share > 0.9995 || share === 0 ? 0 : 1)} %`;

export function bytes(number) {
  if (number < 1000) return `${number} B`;
  const [size, unit] = number < 1e6 ? [number / 1e3, "kB"] : [number / 1e6, "MB"];
  return `${size < 10 ? size.toFixed(1) : Math.round(size)} ${unit}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(whole / 3600)} h ${Math.round((whole % 3600) / 60)} min`;
}

/** Let `node` take what is dropped on it; `take` gets the DataTransfer. */
export function takesDrops(node, take) {
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
    take(event.dataTransfer);
  });
}
