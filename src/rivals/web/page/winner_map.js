// The units of each layer as dots: a column is a block of rival units, and the winner of the block
// is large. During a competition the area of each dot is its unit's posterior, and the one with the
// largest leads. A layer with many blocks takes several lines; a small map has its layers side by
// side.

import { t } from "./language.js";

const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
const GAP = 18; // pixels between two layers
const LEAST = 6; // pixels of a dot and what is around it
const BETWEEN = 0.8; // of that, between two lines of a layer

export class WinnerMap {
  /** layers: [{blocks, units}]; `small` for a map without animation. */
  constructor(layers, small = false) {
    this.small = small;
    this.node = document.createElement("div");
    this.node.className = "layers";
    this.layers = layers.map(({ blocks, units }, number) => {
      const figure = document.createElement("figure");
      const canvas = document.createElement("canvas");
      const caption = document.createElement("figcaption");
      canvas.setAttribute("role", "img");
      figure.append(canvas, caption);
      this.node.append(figure);
      return {
        blocks, units, canvas, caption, number, perLine: blocks,
        winners: null, shared: null, posteriors: null, competing: false, confidence: 0,
        size: new Float32Array(blocks * units).fill(0.28), // of each dot, moves to its goal
        changed: new Float32Array(blocks), // 1 when the winner has just changed, then fades
      };
    });
    this.frame = 0;
    new ResizeObserver(() => this.layout()).observe(this.node);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.requestDraw());
    for (const layer of this.layers) this.describe(layer);
  }

  /**
   * Show winners[layer][block], the number of a unit. While `competing` they are the leading units,
   * confidence[layer] is the mean of their posteriors, and posteriors[layer][block] is the percent
   * of each unit. shared[layer][block]: other tasks have the same winner.
   */
  update(winners, { competing = false, confidence = [], posteriors = null, shared = null } = {}) {
    this.layers.forEach((layer, number) => {
      const now = winners?.[number];
      if (now && layer.winners) {
        now.forEach((unit, block) => { if (unit !== layer.winners[block]) layer.changed[block] = 1; });
      }
      if (now) layer.winners = now;
      layer.shared = shared?.[number] || null;
      layer.posteriors = competing ? posteriors?.[number] || layer.posteriors : null;
      layer.competing = competing;
      layer.confidence = confidence[number] ?? layer.confidence;
      this.describe(layer);
    });
    this.requestDraw();
  }

  describe(layer) {
    const { blocks, units, number } = layer;
    const percent = Math.round(100 * layer.confidence);
    const facts = { number: number + 1, blocks, units };
    const [name, label] = [t("map.layer", facts), t("map.label", facts)];
    const competing = layer.winners && layer.competing;
    layer.caption.textContent = competing ? t("map.posterior", { layer: name, percent }) : name;
    const state = competing ? t("map.label.competing", { layer: label, percent }) : t("map.label.winners", { layer: label });
    layer.canvas.setAttribute("aria-label", layer.winners ? state : label);
  }

  /** Make the dots as large as the width allows. */
  layout() {
    const width = this.node.clientWidth;
    if (!width) return;
    const blocks = this.layers.map((layer) => layer.blocks);
    const sideBySide = (width - 1 - GAP * (blocks.length - 1)) / blocks.reduce((a, b) => a + b, 0);
    const ownRow = (width - 1) / Math.max(...blocks);
    this.cell = this.small && sideBySide >= LEAST ? Math.min(9, sideBySide) : Math.min(14, Math.max(LEAST, ownRow));
    for (const layer of this.layers) {
      const scale = devicePixelRatio || 1;
      const most = Math.max(1, Math.floor(width / this.cell));
      const lines = Math.ceil(layer.blocks / most);
      layer.perLine = Math.ceil(layer.blocks / lines);
      const [across, down] = [layer.perLine * this.cell, ((layer.units + BETWEEN) * lines - BETWEEN) * this.cell];
      layer.canvas.style.width = `${across}px`;
      layer.canvas.style.height = `${down}px`;
      layer.caption.style.maxWidth = `${Math.max(across, 110)}px`;
      layer.canvas.width = Math.round(across * scale);
      layer.canvas.height = Math.round(down * scale);
    }
    this.requestDraw();
  }

  requestDraw() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    const style = getComputedStyle(this.node);
    const colour = (name) => style.getPropertyValue(name).trim();
    const colours = { other: colour("--dot"), leader: colour("--leader"), winner: colour("--winner") };
    const speed = reducedMotion.matches || this.small ? 1 : 0.25;
    let moving = false;
    for (const layer of this.layers) moving = this.drawLayer(layer, colours, speed) || moving;
    if (moving) this.requestDraw();
  }

  drawLayer(layer, colours, speed) {
    const { blocks, units, perLine, winners, posteriors, competing, size, changed } = layer;
    const context = layer.canvas.getContext("2d");
    const cell = layer.canvas.width / perLine;
    let moving = false;
    context.clearRect(0, 0, layer.canvas.width, layer.canvas.height);
    for (let block = 0; block < blocks; block += 1) {
      changed[block] = changed[block] < 0.02 ? 0 : changed[block] * (1 - speed / 3);
      for (let unit = 0; unit < units; unit += 1) {
        const wins = winners !== null && winners[block] === unit;
        const percent = posteriors?.[block]?.[unit];
        const goal = percent !== undefined ? 0.15 + 0.075 * Math.sqrt(percent) : wins ? 0.84 : winners === null || competing ? 0.3 : 0.2;
        const dot = unit * blocks + block;
        size[dot] += (goal - size[dot]) * speed;
        if (Math.abs(goal - size[dot]) > 0.01 || changed[block]) moving = true;
        const shared = wins && layer.shared?.[block];
        const colour = !wins ? colours.other : competing || changed[block] ? colours.leader : colours.winner;
        context.fillStyle = context.strokeStyle = colour;
        context.beginPath();
        const line = Math.floor(block / perLine);
        const [x, y] = [((block % perLine) + 0.5) * cell, (line * (units + BETWEEN) + unit + 0.5) * cell];
        context.arc(x, y, (cell / 2) * size[dot] * (shared ? 0.8 : 1), 0, 7);
        if (shared) { context.lineWidth = cell * 0.16; context.stroke(); } else context.fill();
      }
    }
    return moving;
  }
}
