// Helpers to build the page. Text is always inserted as text, never as markup.

export const byId = (id) => document.getElementById(id);

/** An element: h("p.note", {id: "x"}, "text", child). Properties that start with "on" are event listeners. */
export function h(what, properties = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const node = document.createElement(tag);
  node.className = classes.join(" ");
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node[key] = value;
  }
  node.append(...children);
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

/** Show a message in `node`; an empty one hides it. */
export function showMessage(node, message) {
  node.textContent = message;
  node.hidden = !message;
}

export const percent = (share) => `${(100 * share).toFixed(share >= 0.9995 || share === 0 ? 0 : 1)} %`;
