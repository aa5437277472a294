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
    this.red = new Float32Array(width * height);
    this.green = new Float32Array(width * height);
    this.blue = new Float32Array(width * height);
    this.merged = 0;  // how many were summed
  }

  clear(background) {
    this.pixels.fill(background);
    this.owner.fill(NOTHING);
    for (const sums of [this.cover, this.red, this.green, this.blue]) sums.fill(0);
    this.merged = 0;
  }

  // Corners in pixels, whole ones; no part outside.
  fill(left, top, right, bottom, pixel, owner) {
    const {pixels, width} = this;
    const owners = this.owner;
    if (right - left < 12) {  // most are: the call of fill() takes longer than this
      for (let y = top; y < bottom; ++y) {
        for (let at = y * width + left, end = at + right - left; at < end; ++at) {
          pixels[at] = pixel;
          owners[at] = owner;
        }
      }
      return;
    }
    for (let y = top; y < bottom; ++y) {
      const row = y * width;
      pixels.fill(pixel, row + left, row + right);
      owners.fill(owner, row + left, row + right);
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
      this.sum(left, top, right, bottom, pixel);
      return;
    }
    this.fill(x0, y0, x1, y1, pixel, owner);
    if (x1 - x0 > 2 && y1 - y0 > 2) {
      for (let x = x0; x < x1; ++x) this.pixels[(y1 - 1) * this.width + x] = edge;
      for (let y = y0; y < y1; ++y) this.pixels[y * this.width + x1 - 1] = edge;
    }
  }

  // The same in two colours in turn, along diagonals.
  hatch(left, top, right, bottom, pixel, other, owner) {
    const {pixels, width} = this;
    const x0 = Math.max(0, left), x1 = Math.min(width, right);
    for (let y = Math.max(0, top); y < Math.min(this.height, bottom); ++y) {
      for (let x = x0; x < x1; ++x) {
        pixels[y * width + x] = (x + y) % 8 < 5 ? pixel : other;
        this.owner[y * width + x] = owner;
      }
    }
  }

  // `times`: for how many such rectangles it stands.
  sum(left, top, right, bottom, pixel, times = 1) {
    ++this.merged;
    const red = pixel & 255, green = (pixel >>> 8) & 255, blue = (pixel >>> 16) & 255;
    const x0 = left | 0, y0 = top | 0;
    const x1 = Math.min(Math.ceil(right), this.width), y1 = Math.min(Math.ceil(bottom), this.height);
    for (let y = y0; y < y1; ++y) {
      const high = (Math.min(bottom, y + 1) - Math.max(top, y)) * times;
      for (let x = x0; x < x1; ++x) {
        const area = high * (Math.min(right, x + 1) - Math.max(left, x));
        const at = y * this.width + x;
        this.cover[at] += area;
        this.red[at] += area * red;
        this.green[at] += area * green;
        this.blue[at] += area * blue;
      }
    }
  }

  // Shows what was summed, where no block of its own stands.
  showMerged(background) {
    const {cover, owner, pixels, red, green, blue} = this;
    const r = background & 255, g = (background >>> 8) & 255, b = (background >>> 16) & 255;
    for (let i = 0; i < cover.length; ++i) {
      const sum = cover[i];
      if (sum === 0 || owner[i] >= 0) continue;
      const share = 0.3 + 0.7 * (sum < 1 ? sum : 1);
      pixels[i] = (255 << 24) | ((b + (blue[i] / sum - b) * share) << 16) | ((g + (green[i] / sum - g) * share) << 8) |
        (r + (red[i] / sum - r) * share);
      owner[i] = MERGED;
    }
  }

  ownerAt(x, y) {
    return x < 0 || y < 0 || x >= this.width || y >= this.height ? NOTHING : this.owner[(y | 0) * this.width + (x | 0)];
  }
}
