// The pixels that a model takes, computed as rivals does in Python with Pillow: transparent parts are
// white, a large picture is averaged over boxes first, then the whole picture is resized with a
// triangle as wide as a pixel of the result, rows first, in whole numbers.

const LARGE = 4_000_000; // pixels; larger pictures are reduced before they are resized
const BAND = 500_000; // pixels that are read at once
const BITS = 22; // of a weight, after the point

/**
 * Pixels (channels, height, width) as bytes.
 * `source` has width, height, jpeg, and rows(top, count): RGBA bytes without transparency.
 */
export function toPixels(source, [channels, height, width], scale) {
  const [across, down] = boxes(source, height, width);
  const columns = Math.ceil(source.width / across);
  const rows = Math.ceil(source.height / down);
  const narrow = new Uint8Array(channels * rows * width); // planes of rows, already resized
  const horizontal = weights(columns, width);
  const step = down * Math.max(1, Math.floor(BAND / (source.width * down)));
  for (let top = 0; top < source.height; top += step) {
    const count = Math.min(step, source.height - top);
    const band = source.rows(top, count);
    for (let channel = 0; channel < channels; channel += 1) {
      let plane = channels === 1 ? grey(band) : every4th(band, channel);
      if (across * down > 1) plane = average(plane, source.width, count, across, down);
      const lines = plane.length / columns;
      for (let line = 0; line < lines; line += 1) {
        const to = (channel * rows + top / down + line) * width;
        resize(plane, line * columns, 1, horizontal, narrow, to, 1);
      }
    }
  }
  const pixels = new Uint8Array(channels * height * width);
  const vertical = weights(rows, height);
  for (let channel = 0; channel < channels; channel += 1) {
    for (let column = 0; column < width; column += 1) {
      resize(narrow, channel * rows * width + column, width, vertical, pixels, channel * height * width + column, width);
    }
  }
  return scale === 255 ? pixels : pixels.map((value) => rounded(value * (scale / 255)));
}

/** How many pixels across and down are averaged first. A JPEG is made smaller while it is decoded. */
function boxes({ width: columns, height: rows, jpeg }, height, width) {
  const fits = Math.min(Math.floor(columns / (2 * width)), Math.floor(rows / (2 * height)));
  const factor = jpeg ? [8, 4, 2].find((each) => each <= fits) ?? 1 : 1;
  const left = [Math.ceil(columns / factor), Math.ceil(rows / factor)];
  if (left[0] * left[1] <= LARGE) return [factor, factor];
  return [factor * Math.max(1, Math.floor(left[0] / (2 * width))), factor * Math.max(1, Math.floor(left[1] / (2 * height)))];
}

function grey(band) {
  const plane = new Uint8Array(band.length / 4);
  for (let place = 0, at = 0; place < plane.length; place += 1, at += 4) {
    plane[place] = (19595 * band[at] + 38470 * band[at + 1] + 7471 * band[at + 2] + 32768) >> 16;
  }
  return plane;
}

function every4th(band, first) {
  const plane = new Uint8Array(band.length / 4);
  for (let place = 0, at = first; place < plane.length; place += 1, at += 4) plane[place] = band[at];
  return plane;
}

/** Means of boxes; those at the right and at the bottom may be smaller. */
function average(plane, width, height, across, down) {
  const columns = Math.ceil(width / across);
  const rows = Math.ceil(height / down);
  const small = new Uint8Array(columns * rows);
  for (let row = 0; row < rows; row += 1) {
    const bottom = Math.min(height, (row + 1) * down);
    for (let column = 0; column < columns; column += 1) {
      const right = Math.min(width, (column + 1) * across);
      const size = (bottom - row * down) * (right - column * across);
      let sum = size >> 1;
      for (let y = row * down; y < bottom; y += 1) {
        for (let x = column * across; x < right; x += 1) sum += plane[y * width + x];
      }
      small[row * columns + column] = Math.floor(sum / size);
    }
  }
  return small;
}

/** For each pixel of the result: the first pixel that it reads, and the weight of that and the next ones. */
function weights(from, to) {
  const scale = from / to;
  const reach = Math.max(1, scale);
  return Array.from({ length: to }, (_, place) => {
    const centre = (place + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - reach + 0.5));
    const end = Math.min(from, Math.trunc(centre + reach + 0.5));
    const triangle = Array.from({ length: end - first }, (_, n) => Math.max(0, 1 - Math.abs((first + n - centre + 0.5) * (1 / reach))));
    const sum = triangle.reduce((one, other) => one + other, 0);
    return { first, factors: Float64Array.from(triangle, (each) => Math.trunc(0.5 + (each / sum) * 2 ** BITS)) };
  });
}

/** One line, in steps through `from` and `to`. */
function resize(from, start, step, weighted, to, place, stride) {
  for (let index = 0; index < weighted.length; index += 1) {
    const { first, factors } = weighted[index];
    let sum = 2 ** (BITS - 1);
    for (let n = 0, at = start + first * step; n < factors.length; n += 1, at += step) sum += from[at] * factors[n];
    to[place + index * stride] = Math.min(255, Math.floor(sum / 2 ** BITS));
  }
}

/** To the nearest whole number, from the middle to the even one. */
function rounded(value) {
  const near = Math.round(value);
  return near - value === 0.5 && near % 2 ? near - 1 : near;
}
