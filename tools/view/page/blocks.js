// Blocks over time: each from its allocation to its free.
//
//   stacked      +-----------+         each column of pixels is the stack of what was live at its
//                |   c   +---+---+     fullest moment, long-lived blocks at the bottom
//                +---+---+   d   |
//                | a |   b       |
//                +---+-----------+
//   by address   the same blocks where they lay; what is between them was free
//
// Thousands of blocks are lower than a pixel: those of one colour and about one lifetime are drawn as a
// striped band of their summed height.

class Blocks extends TimeChart {
  constructor(pane) {
    super(pane, {title: 'Blocks', name: 'blocks',
      help: 'Every block from its allocation to its free. Hover one to see what it is, click to keep it.'});
    this.mode = 'stacked';
    this.up = null;  // [from, to] in bytes; null: all
    const choose = (mode) => () => {
      this.mode = mode;
      this.up = null;
      this.app.redraw();
    };
    this.buttons = {
      stacked: element('button', {text: 'stacked', title: 'Long-lived blocks at the bottom; the height is what was allocated', onclick: choose('stacked')}),
      address: element('button', {text: 'by address', title: 'Where the blocks lay; gaps are free', onclick: choose('address')}),
    };
    this.note = element('span', {class: 'note'});
    this.tools.append(this.note, element('span', {class: 'switch'}, this.buttons.stacked, this.buttons.address));
    this.orderBlocks();
    this.drawn = 0;
  }

  // By lifetime, the longest first, in classes of a factor of four; in the order of allocation within.
  orderBlocks() {
    const {blocks, allocAt, freedAt, bytes, first, count} = this.pane.trace;
    const classOf = new Uint8Array(blocks);
    const span = Math.max(1, count - first);
    const sizes = new Uint32Array(16);
    const bounds = Array.from({length: 15}, (_, i) => span / 4 ** (i + 1) * 3);
    for (let b = 0; b < blocks; ++b) {
      const life = freedAt[b] - Math.max(allocAt[b], first);
      let order = 0;
      while (order < 15 && life < bounds[order]) ++order;
      classOf[b] = order;
      ++sizes[order];
    }
    this.starts = new Uint32Array(17);
    for (let i = 0; i < 16; ++i) this.starts[i + 1] = this.starts[i] + sizes[i];
    const next = this.starts.slice();
    this.order = new Uint32Array(blocks);
    // Read one after the other in every frame, where jumps in memory would take most of the time.
    this.begins = new Uint32Array(blocks);
    this.ends = new Uint32Array(blocks);
    this.sizes = new Float64Array(blocks);
    for (let b = 0; b < blocks; ++b) {
      const at = next[classOf[b]]++;
      this.order[at] = b;
      this.begins[at] = allocAt[b];
      this.ends[at] = freedAt[b];
      this.sizes[at] = Math.ceil(bytes[b] / GRAIN_BYTES) * GRAIN_BYTES;
    }
    this.longest = [Infinity, ...bounds];
  }

  get range() {
    if (this.up) return this.up;
    return [0, this.mode === 'stacked' ? this.app.mostAllocated * 1.05 || 1 : Math.max(this.pane.axis.total, 1)];
  }

  zoomedUp(factor, y) {
    const [from, to] = this.range;
    const whole = this.mode === 'stacked' ? this.app.mostAllocated * 1.05 : this.pane.axis.total;
    const share = Math.min(1, Math.max(0, (this.height - this.margin.bottom - y) / this.plotHeight));
    const span = Math.max(GRAIN_BYTES * 4, Math.min(whole, (to - from) * factor));
    this.lift(from + (to - from) * share - span * share, span, whole);
  }

  lift(from, span, whole) {
    const begin = Math.min(Math.max(0, from), whole - span);
    this.up = span >= whole ? null : [begin, begin + span];
    this.app.moved();
  }

  panned(event) {
    const moved = event.sourceEvent.movementY;
    if (!this.up || !moved || event.sourceEvent.type === 'wheel') return;
    const [from, to] = this.up;
    const whole = this.mode === 'stacked' ? this.app.mostAllocated * 1.05 : this.pane.axis.total;
    this.lift(from + moved / this.plotHeight * (to - from), to - from, whole);
  }

  draw() {
    const context = this.begin();
    this.showEmpty(this.mode === 'address' && !this.pane.trace.hasAddresses
      ? 'This trace holds no addresses. "stacked" shows its blocks.' : '');
    for (const [mode, button] of Object.entries(this.buttons)) button.setAttribute('aria-pressed', String(mode === this.mode));
    const [from, to] = this.range;
    const yOf = (bytes) => this.height - this.margin.bottom - (bytes - from) / (to - from) * this.plotHeight;
    const raster = this.rasterFor(this.plotWidth, this.plotHeight);
    const background = pixelOf(themeColour('panel'));
    raster.clear(background);
    this.labels = [];
    this.drawn = 0;
    if (this.mode === 'stacked') this.stack(raster, from, to);
    else if (this.pane.trace.hasAddresses) this.place(raster, from, to, background);
    context.putImageData(raster.image, Math.round(this.margin.left * this.scale), Math.round(this.margin.top * this.scale));
    this.byteAxis(from, to, yOf);
    this.timeAxis();
    this.drawLabels();
    this.note.textContent = raster.merged === 0 ? `${countText(this.drawn)} blocks in view`
      : `${countText(this.drawn)} blocks drawn, ${countText(raster.merged)} smaller than a pixel ${this.mode === 'stacked' ? 'as striped sums' : 'summed'}`;
  }

  stack(raster, from, to) {
    const {trace, colours, filter} = this.pane;
    const {count} = trace;
    // While somebody moves through very many blocks, columns are three pixels wide.
    const grain = this.app.moving && trace.blocks > 100000 ? 3 : 1;
    const width = Math.ceil(raster.width / grain);
    const height = raster.height;
    const columns = this.columns(width);
    const sample = new Int32Array(width);
    let begin = width, end = 0;
    for (let c = 0; c < width; ++c) {
      if (columns.from[c] < 0) continue;
      sample[c] = this.pane.pyramids.allocated.peakOf(columns.from[c], columns.until[c]);
      begin = Math.min(begin, c);
      end = c + 1;
    }
    if (begin >= end) return;
    const first = sample[begin], last = sample[end - 1];
    const [x0, x1] = this.app.view;
    const perValue = width / (x1 - x0);
    const values = this.pane.values;  // null where a moment's value is its number
    const shift = this.pane.valueShift;
    const columnFrom = (moment) => {  // the first one that shows this moment or a later one
      if (moment > last) return end;
      const value = values ? values[moment] - shift : moment - shift;
      let c = Math.min(end - 1, Math.max(begin, Math.floor((value - x0) * perValue)));
      while (c < end && sample[c] < moment) ++c;
      while (c > begin && sample[c - 1] >= moment) --c;
      return c;
    };
    const base = new Float64Array(width);
    const changes = [...colours.pixels, ...colours.dimmed].map(() => new Float64Array(width + 1));
    const changed = new Uint32Array(changes.length);
    const perByte = height / (to - from);
    const large = [];
    const {begins, ends} = this;
    const {keys} = colours;
    const add = (i, c0, c1) => {
      const block = this.order[i];
      const rounded = this.sizes[i];
      if (rounded * perByte >= 0.7) {
        large.push(block, c0, c1, rounded);
        return;
      }
      const key = keys[block] + (filter && !filter[block] ? colours.pixels.length : 0);
      changes[key][c0] += rounded;
      changes[key][c1] -= rounded;
      ++changed[key];
    };
    for (let order = 0; order < 16; ++order) {
      large.length = 0;
      const stop = this.starts[order + 1];
      if (this.longest[order] * (end - begin) < last - first) {
        // Most of these fall between two columns: those that do not are looked up for each column.
        for (let c = begin, before = -1; c < end; before = sample[c++]) {
          const moment = sample[c];
          let i = this.firstFrom(order, Math.max(moment - this.longest[order], before + 1));
          for (; i < stop && begins[i] <= moment; ++i) {
            if (ends[i] <= moment) continue;
            let until = c + 1;
            while (until < end && sample[until] < ends[i]) ++until;
            add(i, c, until);
          }
        }
      } else {
        for (let i = this.firstFrom(order, first - this.longest[order]); i < stop && begins[i] <= last; ++i) {
          if (ends[i] <= first) continue;
          const c0 = begins[i] <= first ? begin : columnFrom(begins[i]);
          const c1 = ends[i] >= count ? end : columnFrom(ends[i]);
          if (c1 > c0) add(i, c0, c1);
        }
      }
      for (let i = 0; i < large.length; i += 4) {
        const [block, c0, c1, size] = [large[i], large[i + 1], large[i + 2], large[i + 3]];
        const pixel = colours.pixelOf(block);
        const edge = colours.edgeOf(block);
        let run = c0;
        for (let c = c0; c < c1; ++c) {
          const bottom = base[c];
          base[c] = bottom + size;
          if (c + 1 < c1 && base[c + 1] === bottom) continue;
          this.bar(raster, run * grain, Math.min(raster.width, (c + 1) * grain), (bottom - from) * perByte, (bottom + size - from) * perByte, pixel, edge, block,
            run === c0, c + 1 === c1);
          run = c + 1;
        }
        ++this.drawn;
      }
      for (let key = 0; key < changes.length; ++key) {
        if (changed[key] === 0) continue;
        raster.merged += changed[key];
        changed[key] = 0;
        this.band(raster, changes[key], base, begin, end, from, perByte, key, grain);
        changes[key].fill(0);
      }
    }
  }

  // The summed height of many small blocks of one colour, on top of what stands there.
  band(raster, change, base, begin, end, from, perByte, key, grain) {
    const {pixels, dimmed} = this.pane.colours;
    const pixel = key < pixels.length ? pixels[key] : dimmed[key - pixels.length];
    const stripe = mixedPixel(pixel, pixelOf(themeColour('panel')), 0.28);
    const {width, height} = raster;
    let sum = 0;
    for (let c = begin; c < end; ++c) {
      sum += change[c];
      if (sum < GRAIN_BYTES) continue;
      const top = Math.max(0, Math.round(height - (base[c] + sum - from) * perByte));
      const bottom = Math.min(height, Math.round(height - (base[c] - from) * perByte));
      base[c] += sum;
      const right = Math.min(width, (c + 1) * grain);
      for (let y = top; y < bottom; ++y) {
        for (let x = c * grain; x < right; ++x) {
          raster.pixels[y * width + x] = (x + y) % 6 < 2 ? stripe : pixel;
          raster.owner[y * width + x] = MERGED - key % pixels.length;
        }
      }
    }
  }

  // Of a class, the place of the first block that was allocated at a moment or later.
  firstFrom(order, moment) {
    let least = this.starts[order];
    let most = this.starts[order + 1];
    while (least < most) {
      const middle = (least + most) >> 1;
      if (this.begins[middle] < moment) least = middle + 1;
      else most = middle;
    }
    return least;
  }

  // One run of a stacked block; heights are pixels from the ground.
  bar(raster, left, right, low, high, pixel, edge, block, begins, ends) {
    const height = raster.height;
    const top = Math.max(0, Math.round(height - high));
    const bottom = Math.min(height, Math.round(height - low));
    if (bottom <= top) return;
    raster.fill(left, top, right, bottom, pixel, block);
    if (bottom - top > 2) raster.pixels.fill(edge, top * raster.width + left, top * raster.width + right);
    if (bottom - top > 2 && right - left > 3) {
      for (let y = top; y < bottom; ++y) {
        if (ends) raster.pixels[y * raster.width + right - 1] = edge;
        if (begins) raster.pixels[y * raster.width + left] = edge;
      }
    }
    if (block >= 0) this.noteLabel(block, left, top, right, bottom);
  }

  noteLabel(block, left, top, right, bottom) {
    const wide = (right - left) / this.scale;
    const high = (bottom - top) / this.scale;
    if (wide < 64 || high < 14 || this.labels.length > 4000) return;
    this.labels.push({block, left: left / this.scale, top: top / this.scale, wide, high});
  }

  place(raster, from, to, background) {
    const {trace, colours, places} = this.pane;
    const {count} = trace;
    const {width, height} = raster;
    const [x0, x1] = this.app.view;
    const perValue = width / (x1 - x0);
    const perByte = height / (to - from);
    const values = this.pane.values;
    const shift = this.pane.valueShift;
    const first = this.pane.momentAt(x0);
    const last = this.pane.momentAt(x1);
    const end = (this.pane.endValue - x0) * perValue;
    const {begins, ends} = this;
    let merged = 0;
    for (let order = 0; order < 16; ++order) {
      const start = this.firstFrom(order, first - this.longest[order]);
      const stop = this.firstFrom(order, last + 1);
      // While somebody moves, every so-manyth of very many stands for the others.
      const stride = this.app.moving && order > 2 ? Math.max(1, Math.floor((stop - start) / 25000)) : 1;
      for (let i = start; i < stop; i += stride) {
        if (ends[i] <= first) continue;
        const block = this.order[i];
        if (places[block] < 0) continue;
        const rounded = this.sizes[i];
        const bottom = height - (places[block] - from) * perByte;
        const top = bottom - rounded * perByte;
        if (bottom < 0 || top > height) continue;
        const left = ((values ? values[begins[i]] : begins[i]) - shift - x0) * perValue;
        const right = ends[i] >= count ? end : ((values ? values[ends[i]] : ends[i]) - shift - x0) * perValue;
        const pixel = colours.pixelOf(block);
        if (right - left >= 1 && bottom - top >= 0.7) {
          raster.box(left, top, right, bottom, pixel, colours.edgeOf(block), block);
          ++this.drawn;
          this.noteLabel(block, Math.max(0, left), Math.max(0, top), Math.min(width, right), Math.min(height, bottom));
        } else if (right > 0 && left < width) {
          merged += stride;
          raster.sum(Math.max(0, left), Math.max(0, top), Math.min(width, Math.max(right, left + 0.01)), Math.min(height, bottom),
            pixel, stride);
        }
      }
    }
    raster.merged = merged;
    raster.showMerged(background);
  }

  drawLabels() {
    const context = this.context;
    this.labels.sort((a, b) => b.wide * b.high - a.wide * a.high);
    const seen = new Set();
    context.textAlign = 'left';
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    for (const {block, left, top, wide, high} of this.labels) {
      if (seen.size >= 120) break;
      if (seen.has(block)) continue;
      seen.add(block);
      const site = this.pane.trace.sites[this.pane.trace.site[block]];
      const text = fittingText(context, bytesText(this.pane.trace.bytes[block]) + (site ? `  ${shortSite(site)}` : ''), wide - 10);
      if (text === '' || text === '…') continue;
      context.fillStyle = this.pane.colours.inkOf(block);
      context.fillText(text, this.margin.left + left + 6, this.margin.top + top + Math.min(high / 2, 10) + 0.5);
    }
    context.font = FONT;
  }

  blockAt(x, y) {
    if (!this.raster || !this.inPlot(x, y)) return NOTHING;
    return this.raster.ownerAt((x - this.margin.left) * this.scale, (y - this.margin.top) * this.scale);
  }

  hovered(x, y, event) {
    super.hovered(x, y, event);
    this.app.tipOfBlock(this.pane, this.blockAt(x, y), event, this.mode === 'stacked');
  }

  clicked(x, y, event) {
    super.clicked(x, y, event);
    this.app.selectBlock(this.pane, this.blockAt(x, y));
  }

  drawOver() {
    const context = this.beginOver();
    this.crosshair(context);
    const {picked} = this.pane;
    if (picked === null || !this.raster) return;
    // The outline of the chosen block, from the pixels that show it.
    const {owner, width, height} = this.raster;
    context.fillStyle = themeColour('strong');
    const size = 1 / this.scale;
    const left = Math.max(0, Math.floor((this.xOf(this.pane.valueOf(this.pane.trace.allocAt[picked])) - this.margin.left) * this.scale) - 2);
    const free = this.pane.trace.freedAt[picked];
    const end = free >= this.pane.trace.count ? this.pane.endValue : this.pane.valueOf(free);
    const right = Math.min(width, Math.ceil((this.xOf(end) - this.margin.left) * this.scale) + 2);
    for (let x = left; x < right; ++x) {
      for (let y = 0; y < height; ++y) {
        const at = y * width + x;
        if (owner[at] !== picked) continue;
        if (y > 0 && y < height - 1 && x > 0 && x < width - 1 && owner[at - 1] === picked && owner[at + 1] === picked &&
            owner[at - width] === picked && owner[at + width] === picked) continue;
        context.fillRect(this.margin.left + x * size, this.margin.top + y * size, Math.max(1, size), Math.max(1, size));
      }
    }
  }
}
