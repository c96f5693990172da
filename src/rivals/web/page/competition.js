// Blocks of rival units as dots: a column is a block, a row a unit. Winners grow, losers shrink.
// While they compete the widest layer fills the row; a still map has its layers side by side.

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const GAP = 18; // between two layers

export class Competition {
  /** layers: [{blocks, units}]; `still` for a map that does not move. */
  constructor(layers, still = false) {
    this.still = still;
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
        blocks, units, canvas, caption, number,
        winners: null, shared: null, settled: false, sure: 0,
        size: new Float32Array(blocks * units).fill(0.28),
        heat: new Float32Array(blocks),
      };
    });
    this.frame = 0;
    new ResizeObserver(() => this.lay()).observe(this.node);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.wake());
    for (const layer of this.layers) this.name(layer);
  }

  /** Tell who wins: winners[layer][block] is a unit. */
  tell(winners, { settled = false, sure = [], shared = null } = {}) {
    this.layers.forEach((layer, number) => {
      const now = winners?.[number];
      if (now && layer.winners) {
        now.forEach((unit, block) => { if (unit !== layer.winners[block]) layer.heat[block] = 1; });
      }
      if (now) layer.winners = now;
      layer.shared = shared?.[number] || null;
      layer.settled = settled;
      layer.sure = sure[number] ?? layer.sure;
      this.name(layer);
    });
    this.wake();
  }

  name(layer) {
    const { blocks, units, number } = layer;
    const state = !layer.winners ? "" : layer.settled ? ", settled" : layer.sure ? `, ${Math.round(100 * layer.sure)} % sure` : "";
    layer.caption.textContent = `Layer ${number + 1} · ${blocks} × ${units}${this.still ? "" : state}`;
    layer.canvas.setAttribute("aria-label", `Layer ${number + 1}: ${blocks} blocks of ${units} rival units${state}`);
  }

  /** Dots as large as the room allows. */
  lay() {
    const room = this.node.clientWidth;
    if (!room) return;
    const blocks = this.layers.map((layer) => layer.blocks);
    const together = (room - 1 - GAP * (blocks.length - 1)) / blocks.reduce((a, b) => a + b, 0);
    const alone = (room - 1) / Math.max(...blocks);
    this.cell = this.still && together >= 6 ? Math.min(9, together) : Math.min(14, Math.max(3, alone));
    for (const layer of this.layers) {
      const scale = devicePixelRatio || 1;
      const [width, height] = [layer.blocks * this.cell, layer.units * this.cell];
      layer.canvas.style.width = `${width}px`;
      layer.canvas.style.height = `${height}px`;
      layer.caption.style.maxWidth = `${Math.max(width, 110)}px`;
      layer.canvas.width = Math.round(width * scale);
      layer.canvas.height = Math.round(height * scale);
    }
    this.wake();
  }

  wake() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    const style = getComputedStyle(this.node);
    const colour = (name) => style.getPropertyValue(name).trim();
    const colours = { quiet: colour("--dot"), wins: colour("--winner"), settled: colour("--settled") };
    const speed = calm.matches || this.still ? 1 : 0.25;
    let moving = false;
    for (const layer of this.layers) moving = this.drawLayer(layer, colours, speed) || moving;
    if (moving) this.wake();
  }

  drawLayer(layer, colours, speed) {
    const { blocks, units, winners, size, heat } = layer;
    const ink = layer.canvas.getContext("2d");
    const cell = layer.canvas.width / blocks;
    let moving = false;
    ink.clearRect(0, 0, layer.canvas.width, layer.canvas.height);
    for (let block = 0; block < blocks; block += 1) {
      heat[block] = heat[block] < 0.02 ? 0 : heat[block] * (1 - speed / 3);
      for (let unit = 0; unit < units; unit += 1) {
        const wins = winners !== null && winners[block] === unit;
        const goal = wins ? 0.84 : layer.settled ? 0.2 : 0.3;
        const at = unit * blocks + block;
        size[at] += (goal - size[at]) * speed;
        if (Math.abs(goal - size[at]) > 0.01 || heat[block]) moving = true;
        const shared = wins && layer.shared?.[block];
        ink.globalAlpha = wins ? (layer.settled ? 1 : 0.55 + 0.45 * Math.max(layer.sure, heat[block])) : 1;
        ink.fillStyle = ink.strokeStyle = !wins ? colours.quiet : layer.settled && !heat[block] ? colours.settled : colours.wins;
        ink.beginPath();
        const [x, y] = [(block + 0.5) * cell, (unit + 0.5) * cell];
        ink.arc(x, y, (cell / 2) * size[at] * (shared ? 0.8 : 1), 0, 7);
        if (shared) { ink.lineWidth = cell * 0.16; ink.stroke(); } else ink.fill();
      }
    }
    ink.globalAlpha = 1;
    return moving;
  }
}
