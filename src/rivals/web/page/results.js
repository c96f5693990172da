// After a training: the learning curve, the confusion matrix, the mistaken pictures.

import { address } from "./api.js";
import { h } from "./dom.js";
import { decimal, t } from "./language.js";

const SVG = "http://www.w3.org/2000/svg";
const SHARES = ["quarter", "half", "all"]; // of the pictures, as `rivals learn` measures them
const [WIDTH, HEIGHT, LEFT, TOP, BOTTOM] = [340, 160, 44, 14, 26];

function shape(name, properties, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(properties)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/** Accuracy from a quarter, half and all of the pictures, and what twice as many would probably bring. */
export function curve({ accuracies, gain, error }, sentence) {
  const expected = Math.min(100, accuracies.at(-1) + gain);
  const [low, high] = [Math.max(0, expected - error), Math.min(100, expected + error)];
  const floor = Math.max(0, Math.floor((Math.min(...accuracies, low) - 5) / 10) * 10);
  const across = (place) => LEFT + 30 + (place * (WIDTH - LEFT - 60)) / 3;
  const down = (value) => TOP + ((100 - value) / (100 - floor)) * (HEIGHT - TOP - BOTTOM);
  const names = SHARES.map((share) => t(`curve.${share}`));
  const points = accuracies.map((accuracy, place) => t("curve.point", { share: names[place], accuracy: decimal(accuracy) })).join(", ");
  const chart = shape("svg", { class: "curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": t("curve.label", { points, expected: decimal(expected) }) });
  for (const value of [floor, (floor + 100) / 2, 100]) {
    chart.append(shape("line", { class: "grid", x1: LEFT, x2: WIDTH, y1: down(value), y2: down(value) }),
      shape("text", { x: LEFT - 6, y: down(value) + 4, "text-anchor": "end" }, `${decimal(value)} %`));
  }
  const line = accuracies.map((accuracy, place) => `${across(place)},${down(accuracy)}`).join(" ");
  chart.append(shape("polyline", { points: line }),
    shape("line", { class: "expected", x1: across(2), y1: down(accuracies.at(-1)), x2: across(3), y2: down(expected) }),
    shape("line", { class: "error", x1: across(3), x2: across(3), y1: down(low), y2: down(high) }));
  [...accuracies, expected].forEach((accuracy, place) => {
    chart.append(shape("circle", { class: place === 3 ? "expected" : "", cx: across(place), cy: down(accuracy), r: 4 }),
      shape("text", { x: across(place), y: HEIGHT - 6, "text-anchor": "middle" }, names[place] ?? t("curve.twice")));
  });
  return h("div", {}, h("h4", {}, t("curve.title")), h("p", {}, sentence), chart);
}

/** Rows are true classes, columns are answers. */
function matrix(classes, confusion) {
  const most = Math.max(...confusion.map((row) => row.reduce((a, b) => a + b, 0)));
  const cell = (count, row, column) => {
    const node = h(count ? (row === column ? "td.right" : "td.wrong") : "td", {}, count ? String(count) : "");
    node.style.setProperty("--share", `${Math.round(100 * Math.min(1, (row === column ? 1 : 2) * (count / most)))}%`);
    return node;
  };
  return h("div.scroll", { tabIndex: 0, role: "region", "aria-label": t("mistakes.title") },
    h("table.confusion", { "aria-label": t("mistakes.answers") },
      h("thead", {}, h("tr", {}, h("td", {}), ...classes.map((name) => h("th", { scope: "col", title: name }, name)))),
      h("tbody", {}, ...confusion.map((row, number) => h("tr", {}, h("th", { scope: "row", title: classes[number] }, classes[number]),
        ...row.map((count, column) => cell(count, number, column)))))));
}

/** The event `mistakes`; `open` is called with a mistaken picture, to move or to remove it. */
export function mistaken(event, sentence, task, open) {
  const pictures = event.mistakes.map(({ picture, label, answer }) => {
    const shown = { task, name: label, picture: picture.split(/[\\/]/).at(-1) };
    const item = h("li", {}, h("button.thumb", { type: "button", "aria-label": t("mistakes.picture", { label, answer }), onclick: () => open(shown) },
      h("img", { alt: "", loading: "lazy", src: address("picture", shown), onerror: () => item.remove() })), // it was moved or removed
      h("span", {}, t("mistakes.one", { label, answer })));
    return item;
  });
  const more = event.count - pictures.length;
  return [
    h("div", {}, h("h4", {}, t("mistakes.title")), sentence ? h("p", {}, sentence) : "",
      ...(event.confusion ? [matrix(event.classes, event.confusion), h("p.note", {}, t("mistakes.answers"))] : [])),
    h("div.wide", {}, h("h4", {}, event.count ? t("mistakes.list", { n: event.count }) : t("mistakes.none")),
      pictures.length ? h("p.note", {}, t("mistakes.hint")) : "",
      h("ul.mistakes", { hidden: !pictures.length }, ...pictures),
      more > 0 ? h("p.note", {}, t("mistakes.more", { n: more })) : ""),
  ];
}
