// Raster: rectangles as pixels, hundreds of thousands a frame, and which block each pixel shows.
//
// What is smaller than a pixel is not left out: its area is summed, and the pixel shows how much of
// it is covered. MERGED stands there in place of a block's number.

const NOTHING = -1;
const MERGED = -2;

class Raster {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.image = new ImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.owner = new Int32Array(width * height);
    this.cover = new Float32Array(width * height);
    this.merged = 0;  // how many were summed
  }

  clear(background) {
    this.pixels.fill(background);
    this.owner.fill(NOTHING);
    this.cover.fill(0);
    this.merged = 0;
  }

  // Corners in pixels, whole ones; no part outside.
  fill(left, top, right, bottom, pixel, owner) {
    for (let y = top; y < bottom; ++y) {
      const row = y * this.width;
      this.pixels.fill(pixel, row + left, row + right);
      this.owner.fill(owner, row + left, row + right);
    }
  }

  // A rectangle with corners anywhere; an edge of its own where there is room for one.
  box(left, top, right, bottom, pixel, edge, owner) {
    if (left < 0) left = 0;
    if (top < 0) top = 0;
    if (right > this.width) right = this.width;
    if (bottom > this.height) bottom = this.height;
    if (right <= left || bottom <= top) return;
    const x0 = Math.round(left), x1 = Math.round(right), y0 = Math.round(top), y1 = Math.round(bottom);
    if (x1 <= x0 || y1 <= y0) {
      this.sum(left, top, right, bottom);
      return;
    }
    this.fill(x0, y0, x1, y1, pixel, owner);
    if (x1 - x0 > 2 && y1 - y0 > 2) {
      for (let x = x0; x < x1; ++x) this.pixels[(y1 - 1) * this.width + x] = edge;
      for (let y = y0; y < y1; ++y) this.pixels[y * this.width + x1 - 1] = edge;
    }
  }

  sum(left, top, right, bottom) {
    ++this.merged;
    const x0 = left | 0, y0 = top | 0;
    const x1 = Math.min(Math.ceil(right), this.width), y1 = Math.min(Math.ceil(bottom), this.height);
    for (let y = y0; y < y1; ++y) {
      const high = Math.min(bottom, y + 1) - Math.max(top, y);
      for (let x = x0; x < x1; ++x) {
        this.cover[y * this.width + x] += high * (Math.min(right, x + 1) - Math.max(left, x));
      }
    }
  }

  // Shows what was summed, where no block of its own stands.
  showMerged(background, pixel) {
    const shades = [];
    for (let i = 0; i <= 16; ++i) shades.push(mixedPixel(background, pixel, 0.3 + 0.7 * i / 16));
    const {cover, owner, pixels} = this;
    for (let i = 0; i < cover.length; ++i) {
      if (cover[i] === 0 || owner[i] >= 0) continue;
      pixels[i] = shades[Math.min(16, Math.round(cover[i] * 16))];
      owner[i] = MERGED;
    }
  }

  ownerAt(x, y) {
    return x < 0 || y < 0 || x >= this.width || y >= this.height ? NOTHING : this.owner[(y | 0) * this.width + (x | 0)];
  }
}
