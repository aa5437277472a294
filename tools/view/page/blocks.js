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
//
// Millions take longer than a frame. So a picture is made in steps, as many in a frame as there is
// time for; until it is done the one before it is shown, stretched to where its stretch is now.


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
    this.job = null;   // the picture that is being made
    this.done = null;  // the one that is shown
    this.picture = document.createElement('canvas');
    this.pictureContext = this.picture.getContext('2d', {alpha: false});
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
    const places = this.mode === 'stacked' || this.pane.trace.hasAddresses;
    this.showEmpty(places ? '' : 'This trace holds no addresses. "stacked" shows its blocks.');
    for (const [mode, button] of Object.entries(this.buttons)) button.setAttribute('aria-pressed', String(mode === this.mode));
    this.make();
    const [from, to] = this.range;
    if (this.done) this.drawPicture(this.done);
    this.byteAxis(from, to, (bytes) => this.yOf(bytes));
    this.timeAxis();
    if (this.isCurrent) this.drawLabels();
    if (this.done) this.note.textContent = this.done.note;
    if (this.job) this.app.redrawChart(this);
  }

  yOf(bytes) {
    const [from, to] = this.range;
    return this.height - this.margin.bottom - (bytes - from) / (to - from) * this.plotHeight;
  }

  // What a picture depends on.
  wanted() {
    const moving = this.isCoarse;
    const [view, range] = [[...this.app.view], [...this.range]];
    const of = `${this.app.version} ${this.mode} ${this.width} ${this.height} ${this.scale}`;
    return {view, range, moving, mode: this.mode, of, key: `${of} ${view} ${range} ${moving}`};
  }

  // Goes on with the picture, for as long as a frame may take.
  make() {
    const until = performance.now() + this.app.stepsMs / this.app.panes.length;
    // One of another kind is given up; one of another stretch is shown while the next is made.
    if (this.done && this.done.mode !== this.mode) this.done = null;
    if (this.job && this.job.of !== this.wanted().of) this.giveUp();
    do {
      if (!this.job) {
        const wanted = this.wanted();
        if (this.done?.key === wanted.key) return;
        this.begun(wanted);
      }
      while (!this.job.steps.next().done) if (performance.now() > until) return;
      this.finish();
    } while (performance.now() < until);
    if (this.done.key !== this.wanted().key) this.begun(this.wanted());
  }

  begun(job) {
    this.job = job;
    job.raster = this.rasterFor(this.plotWidth, this.plotHeight, this.spare);
    this.spare = null;
    job.labels = [];
    job.drawn = 0;
    const background = pixelOf(themeColour('panel'));
    job.raster.clear(background);
    job.steps = this.mode === 'stacked' ? this.stack(job) : this.place(job, background);
  }

  giveUp() {
    this.spare = this.job.raster;
    this.job = null;
  }

  finish() {
    const {job, picture} = this;
    const {raster, drawn} = job;
    if (picture.width !== raster.width || picture.height !== raster.height) [picture.width, picture.height] = [raster.width, raster.height];
    this.pictureContext.putImageData(raster.image, 0, 0);
    job.note = raster.merged === 0 ? `${countText(drawn)} blocks in view`
      : `${countText(drawn)} blocks drawn, ${countText(raster.merged)} smaller than a pixel ${this.mode === 'stacked' ? 'as striped sums' : 'summed'}`;
    [this.spare, this.raster] = [this.raster, raster];
    [this.done, this.job] = [job, null];
  }

  // Whether the picture is of the stretch that is shown.
  get isCurrent() {
    return this.done !== null && String(this.done.view) === String(this.app.view) && String(this.done.range) === String(this.range);
  }

  // The part of the picture that is in view, where it is now.
  drawPicture({view, range, raster}) {
    const {context, margin, picture, scale} = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.imageSmoothingEnabled = false;
    const [left, top] = [Math.round(margin.left * scale), Math.round(margin.top * scale)];
    if (this.isCurrent) {
      context.drawImage(picture, left, top);
    } else {
      const part = ([a0, a1], [b0, b1], size) => {  // of a in b: [from, length] in the picture, and where it goes
        const from = Math.max(a0, b0), to = Math.min(a1, b1);
        if (to <= from) return null;
        const share = (value, [c0, c1]) => (value - c0) / (c1 - c0) * size;
        return [share(from, [a0, a1]), share(to, [a0, a1]) - share(from, [a0, a1]), share(from, [b0, b1]), share(to, [b0, b1]) - share(from, [b0, b1])];
      };
      const x = part(view, this.app.view, raster.width);
      const y = part(range, this.range, raster.height);
      if (x && y) {
        const [sx, sw, dx, dw] = x;
        const [sy, sh, dy, dh] = y;  // from the ground
        context.drawImage(picture, sx, raster.height - sy - sh, sw, sh, left + dx, top + raster.height - dy - dh, dw, dh);
      }
    }
    context.setTransform(scale, 0, 0, scale, 0, 0);
  }

  // Generators of steps, each of a fraction of a millisecond.
  *stack(job) {
    const {raster, view: [x0, x1], range: [from, to]} = job;
    const {trace, colours, filter} = this.pane;
    const {block: blockOf, begins, ends, sizes, longest, starts} = trace.lifetimes;
    const lifetimes = trace.lifetimes;
    const {count} = trace;
    const grain = job.moving ? 3 : 1;  // pixels a column
    const width = Math.ceil(raster.width / grain);
    const height = raster.height;
    const columns = this.columns(width, job.view);
    const sample = new Int32Array(width);
    let begin = width, end = 0;
    for (let c = 0; c < width; ++c) {
      if (columns.from[c] < 0) continue;
      sample[c] = this.pane.pyramids.allocated.peakOf(columns.from[c], columns.until[c]);
      begin = Math.min(begin, c);
      end = c + 1;
    }
    if (begin >= end) return;
    yield;
    const first = sample[begin], last = sample[end - 1];
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
    const {keys} = colours;
    const add = (i, c0, c1) => {
      const block = blockOf[i];
      const rounded = sizes[i];
      if (rounded * perByte >= 0.7) {
        large.push(block, c0, c1, rounded);
        return;
      }
      const key = keys[block] + (filter && !filter[block] ? colours.pixels.length : 0);
      changes[key][c0] += rounded;
      changes[key][c1] -= rounded;
      ++changed[key];
    };
    // Of one column, those that no column before it had.
    const addAt = (order, c, before) => {
      const moment = sample[c];
      const stop = starts[order + 1];
      let i = lifetimes.firstFrom(order, Math.max(moment - longest[order], before + 1));
      for (; i < stop && begins[i] <= moment; ++i) {
        if (ends[i] <= moment) continue;
        let until = c + 1;
        while (until < end && sample[until] < ends[i]) ++until;
        add(i, c, until);
      }
    };
    const addFrom = (i, stop) => {
      for (; i < stop; ++i) {
        if (ends[i] <= first) continue;
        const c0 = begins[i] <= first ? begin : columnFrom(begins[i]);
        const c1 = ends[i] >= count ? end : columnFrom(ends[i]);
        if (c1 > c0) add(i, c0, c1);
      }
    };
    for (let order = 0; order < 16; ++order) {
      large.length = 0;
      if (longest[order] * (end - begin) < last - first) {
        // Most of these fall between two columns: those that do not are looked up for each column.
        for (let c = begin, before = -1; c < end; before = sample[c++]) {
          addAt(order, c, before);
          if (c % 8 === 0) yield;
        }
      } else {
        const stop = lifetimes.firstFrom(order, last + 1);
        for (let i = lifetimes.firstFrom(order, first - longest[order]); i < stop; i += 2048) {
          addFrom(i, Math.min(stop, i + 2048));
          yield;
        }
      }
      for (let i = 0; i < large.length; i += 4) {
        this.stackLarge(job, large, i, base, grain, perByte);
        if (i % 1024 === 0) yield;
      }
      for (let key = 0; key < changes.length; ++key) {
        if (changed[key] === 0) continue;
        raster.merged += changed[key];
        changed[key] = 0;
        this.band(raster, changes[key], base, begin, end, from, perByte, key, grain);
        changes[key].fill(0);
        yield;
      }
    }
  }

  // A block of its own, on top of what stands in its columns.
  stackLarge(job, large, at, base, grain, perByte) {
    const {raster, range: [from]} = job;
    const {colours} = this.pane;
    const [block, c0, c1, size] = [large[at], large[at + 1], large[at + 2], large[at + 3]];
    const pixel = colours.pixelOf(block);
    const edge = colours.edgeOf(block);
    let run = c0;
    for (let c = c0; c < c1; ++c) {
      const bottom = base[c];
      base[c] = bottom + size;
      if (c + 1 < c1 && base[c + 1] === bottom) continue;
      this.bar(job, run * grain, Math.min(raster.width, (c + 1) * grain), (bottom - from) * perByte, (bottom + size - from) * perByte, pixel, edge, block,
        run === c0, c + 1 === c1);
      run = c + 1;
    }
    ++job.drawn;
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

  // One run of a stacked block; heights are pixels from the ground.
  bar(job, left, right, low, high, pixel, edge, block, begins, ends) {
    const {raster} = job;
    const {height} = raster;
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
    if (block >= 0) this.noteLabel(job, block, left, top, right, bottom);
  }

  noteLabel(job, block, left, top, right, bottom) {
    const wide = (right - left) / this.scale;
    const high = (bottom - top) / this.scale;
    if (wide < 64 || high < 14 || job.labels.length > 4000) return;
    job.labels.push({block, left: left / this.scale, top: top / this.scale, wide, high});
  }

  *place(job, background) {
    const {raster, view: [x0, x1]} = job;
    const {trace} = this.pane;
    if (!trace.hasAddresses) return;
    const {lifetimes} = trace;
    const first = this.pane.momentAt(x0);
    const last = this.pane.momentAt(x1);
    for (let order = 0; order < 16; ++order) {
      const start = lifetimes.firstFrom(order, first - lifetimes.longest[order]);
      const stop = lifetimes.firstFrom(order, last + 1);
      // While somebody moves, every so-manyth of very many stands for the others.
      const stride = job.moving && order > 2 ? Math.max(1, Math.floor((stop - start) / 25000)) : 1;
      for (let i = start; i < stop; i += 1024 * stride) {
        this.placeSome(job, i, Math.min(stop, i + 1024 * stride), stride, first);
        yield;
      }
    }
    raster.showMerged(background);
  }

  placeSome(job, start, stop, stride, first) {
    const {raster, view: [x0, x1], range: [from, to]} = job;
    const {trace, colours, places} = this.pane;
    const {count} = trace;
    const {width, height} = raster;
    const perValue = width / (x1 - x0);
    const perByte = height / (to - from);
    const values = this.pane.values;
    const shift = this.pane.valueShift;
    const end = (this.pane.endValue - x0) * perValue;
    const {block: blockOf, begins, ends, sizes} = trace.lifetimes;
    for (let i = start; i < stop; i += stride) {
      if (ends[i] <= first) continue;
      const block = blockOf[i];
      if (places[block] < 0) continue;
      const bottom = height - (places[block] - from) * perByte;
      const top = bottom - sizes[i] * perByte;
      if (bottom < 0 || top > height) continue;
      const left = ((values ? values[begins[i]] : begins[i]) - shift - x0) * perValue;
      const right = ends[i] >= count ? end : ((values ? values[ends[i]] : ends[i]) - shift - x0) * perValue;
      const pixel = colours.pixelOf(block);
      if (right - left >= 1 && bottom - top >= 0.7) {
        raster.box(left, top, right, bottom, pixel, colours.edgeOf(block), block);
        ++job.drawn;
        this.noteLabel(job, block, Math.max(0, left), Math.max(0, top), Math.min(width, right), Math.min(height, bottom));
      } else if (right > 0 && left < width) {
        raster.sum(Math.max(0, left), Math.max(0, top), Math.min(width, Math.max(right, left + 0.01)), Math.min(height, bottom),
          pixel, stride);
      }
    }
  }

  drawLabels() {
    const context = this.context;
    const {labels} = this.done;
    labels.sort((a, b) => b.wide * b.high - a.wide * a.high);
    const seen = new Set();
    context.textAlign = 'left';
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    for (const {block, left, top, wide, high} of labels) {
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
    if (!this.done || !this.inPlot(x, y)) return NOTHING;
    const {view: [x0, x1], range: [from, to], raster} = this.done;
    if (this.isCurrent) return raster.ownerAt((x - this.margin.left) * this.scale, (y - this.margin.top) * this.scale);
    const [low, high] = this.range;
    const bytes = low + (this.height - this.margin.bottom - y) / this.plotHeight * (high - low);
    return raster.ownerAt((this.valueAt(x) - x0) / (x1 - x0) * raster.width, (1 - (bytes - from) / (to - from)) * raster.height);
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
    if (picked === null || !this.isCurrent) return;
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
