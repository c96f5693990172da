// Where pixels come from: a picture file, or what a canvas or a video shows.

const MOST = 100_000_000; // bytes of a file

/** A picture file, turned as its EXIF data says; an Error has a sentence for the user. */
export async function ofFile(file) {
  if (file.size > MOST) throw new Error(`has ${Math.round(file.size / 1e6)} MB, but a picture may have at most ${MOST / 1e6} MB.`);
  let bitmap;
  try {
    bitmap = await createImageBitmap(file, { imageOrientation: "from-image", colorSpaceConversion: "none" });
  } catch {
    throw new Error("is not a picture that this browser can read; use PNG, JPEG or WebP.");
  }
  const head = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const jpeg = head[0] === 0xff && head[1] === 0xd8;
  return { ...drawn(bitmap, 0, 0, bitmap.width, bitmap.height), jpeg, close: () => bitmap.close() };
}

/** The central square of what a canvas or a video shows now. */
export function squareOf(shown, width, height) {
  const side = Math.min(width, height);
  return drawn(shown, Math.floor((width - side) / 2), Math.floor((height - side) / 2), side, side);
}

/** A part of something that can be drawn, read in bands: a phone's canvas is not large. */
function drawn(shown, left, above, width, height) {
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const rows = (top, count) => {
    if (canvas.width !== width || canvas.height < count) Object.assign(canvas, { width, height: count });
    context.fillStyle = "#fff"; // where it is transparent
    context.fillRect(0, 0, width, count);
    context.drawImage(shown, left, above + top, width, count, 0, 0, width, count);
    return context.getImageData(0, 0, width, count).data;
  };
  return { width, height, rows, jpeg: false, close: () => {} };
}
