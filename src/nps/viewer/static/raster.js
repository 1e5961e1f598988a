// Rules by step and slot as an image, a pixel a cell: built once and drawn at any zoom, which is
// what lets thousands of steps scrub smoothly.
import { ruleRGB } from "./colours.js";

const WIDEST = 8192; // pixels of a canvas that every browser draws quickly

/** Cells in columns and rows, coloured by `colour(column, row)`: [r, g, b, a] or null. */
export class CellImage {
  constructor(columns, rows, colour) {
    this.columns = columns;
    this.rows = rows;
    this.tiles = [];
    for (let start = 0; start < columns; start += WIDEST) {
      const width = Math.min(WIDEST, columns - start);
      const canvas = document.createElement("canvas");
      canvas.width = width;
      canvas.height = rows;
      const image = new ImageData(width, rows);
      for (let row = 0; row < rows; row += 1) {
        for (let column = 0; column < width; column += 1) {
          const rgba = colour(start + column, row);
          if (rgba) image.data.set(rgba, 4 * (row * width + column));
        }
      }
      canvas.getContext("2d").putImageData(image, 0, 0);
      this.tiles.push(canvas);
    }
  }

  /** Draw columns `from` to `to` (which need not be whole) into a box. */
  draw(context, from, to, x, y, width, height) {
    context.imageSmoothingEnabled = false;
    const scale = width / (to - from);
    this.tiles.forEach((tile, i) => {
      const start = Math.max(from, i * WIDEST);
      const end = Math.min(to, i * WIDEST + tile.width);
      if (end <= start) return;
      context.drawImage(
        tile, start - i * WIDEST, 0, end - start, this.rows,
        x + (start - from) * scale, y, (end - start) * scale, height,
      );
    });
  }
}

/** Of a playback: columns are steps × stages, rows are slots; nothing where no rule fired. */
export function ruleImage(play) {
  const colours = Array.from({ length: Math.max(1, play.rules) }, (_, i) => [...ruleRGB(i), 255]);
  return new CellImage(play.steps * play.stages, play.slots, (column, slot) => {
    const stage = column % play.stages;
    const rule = play.ruleAt((column - stage) / play.stages, stage, slot);
    return rule < 0 ? null : colours[rule] ?? colours[0];
  });
}
