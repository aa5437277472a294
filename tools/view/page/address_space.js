// The address space at a moment: all that was ever reserved, from the lowest address to the
// highest, in rows like the lines of a text. Zoomed out it is the whole card, zoomed in one block.
//
//   |##|####....|######|        # a block   . reserved and free   blank: not reserved now
//   |..#####|   |##|...|        a line where a segment begins
//
// Of gapless, whose blocks may lie in windows (windows.js): the pages that a window is made of are
// hatched in its block's colour where they are in the home.

const ROW_PIXELS = 15;
const ROW_GAP = 3;

class AddressSpace extends Chart {
  constructor(pane) {
    super(pane, {title: 'Address space', name: 'addresses',
      help: 'Segments, blocks and holes at the moment under the pointer, or else the selected one. The wheel zooms. ' +
        'Hatched: pages of the home that a window shows at other addresses.'});
    this.margin = {left: 68, right: 14, top: 6, bottom: 6};
    this.note = element('span', {class: 'note'});
    this.tools.append(this.note);
    this.start = 0;
    this.zoomed = 1;
    this.history = new SegmentHistory(pane.trace);
    this.drag = null;
    this.over.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.zoomAt(event.deltaY > 0 ? 1.25 : 0.8, ...this.pointerAt(event));
    }, {passive: false});
    this.over.addEventListener('pointerdown', (event) => {
      this.drag = {y: event.clientY, start: this.start, moved: false};
      this.over.setPointerCapture(event.pointerId);
    });
    this.over.addEventListener('pointermove', (event) => this.moved(event));
    this.over.addEventListener('pointerup', (event) => this.released(event));
    this.over.addEventListener('pointerleave', () => this.app.hideTip());
  }

  get rows() {
    return Math.max(1, Math.floor((this.plotHeight + ROW_GAP) / (ROW_PIXELS + ROW_GAP)));
  }
  get rowBytes() {
    return Math.max(this.pane.axis.total / this.rows / this.zoomed, 1);
  }

  showWhole() {
    this.start = 0;
    this.zoomed = 1;
  }

  clamp() {
    const shown = this.rowBytes * this.rows;
    this.start = Math.min(Math.max(0, this.start), Math.max(0, this.pane.axis.total - shown));
  }

  placeAt(x, y) {
    const row = Math.floor((y - this.margin.top) / (ROW_PIXELS + ROW_GAP));
    const share = (x - this.margin.left) / this.plotWidth;
    if (row < 0 || row >= this.rows || share < 0 || share > 1) return -1;
    return this.start + (row + share) * this.rowBytes;
  }

  zoomAt(factor, x, y) {
    const place = this.placeAt(x, y);
    if (place < 0) return;
    const lines = (place - this.start) / this.rowBytes;
    const most = Math.max(1, this.pane.axis.total / this.rows / (GRAIN_BYTES * 8));
    this.zoomed = Math.min(most, Math.max(1, this.zoomed / factor));
    this.start = place - lines * this.rowBytes;
    this.clamp();
    this.app.redrawChart(this);
  }

  moved(event) {
    const [x, y] = this.pointerAt(event);
    if (this.drag) {
      const rows = (event.clientY - this.drag.y) / (ROW_PIXELS + ROW_GAP);
      this.drag.moved ||= Math.abs(event.clientY - this.drag.y) > 3;
      this.start = this.drag.start - rows * this.rowBytes;
      this.clamp();
      this.app.redrawChart(this);
      return;
    }
    const block = this.blockAt(x, y);
    if (block !== NOTHING) this.app.tipOfBlock(this.pane, block, event, false, this.lentLines(this.placeAt(x, y)));
    else this.app.showTip(this.placeLines(this.placeAt(x, y)), event);
  }

  released(event) {
    const moved = this.drag?.moved;
    this.drag = null;
    if (!moved) {
      this.app.activate(this.pane);
      this.app.selectBlock(this.pane, this.blockAt(...this.pointerAt(event)));
    }
  }

  blockAt(x, y) {
    if (!this.raster) return NOTHING;
    return this.raster.ownerAt((x - this.margin.left) * this.scale, (y - this.margin.top) * this.scale);
  }

  // What is said of a page that is lent to a window.
  lentLines(place) {
    if (place < 0 || !this.windows?.length) return [];
    const offset = this.pane.axis.offsetOf(place);
    const holds = (piece) => piece.offset <= offset && offset < piece.offset + piece.bytes;
    const window = this.windows.find(({pieces}) => pieces.some(holds));
    if (!window) return [];
    const piece = window.pieces.find(holds);
    return [['page of the home', `at ${this.pane.trace.addressText(offset)}, one of ${bytesText(piece.bytes)} in a row`],
      ['lent to', `the window at ${this.pane.trace.addressText(window.offset)}, where this block is`]];
  }

  // What is said of a place where no block is.
  placeLines(place) {
    if (place < 0 || place >= this.pane.axis.total) return [];
    const offset = this.pane.axis.offsetOf(place);
    const lines = [['address', this.pane.trace.addressText(offset)]];
    const segments = this.history.at(this.pane.shown);
    const segment = segments[this.history.firstBeyond(offset)];
    if (segment && segment.from <= offset) {
      const hole = this.holes.find(([from, to]) => from <= offset && offset < to);
      if (hole) lines.unshift(['hole', bytesText(hole[1] - hole[0])]);
      lines.push(['segment', `${bytesText(segment.to - segment.from)}${segment.mapped ? ', expandable' : ''}`]);
      lines.push(['stream', this.pane.trace.about.streams[segment.stream] ?? '']);
    } else if (this.history.known) {
      lines.unshift(['not reserved', 'at this moment']);
    }
    return lines;
  }

  // Calls `draw(left, right, row)` in pixels of the raster for each row that a stretch lies on.
  eachRow(place, bytes, draw) {
    const rowBytes = this.rowBytes;
    const {width} = this.raster;
    let from = Math.max(place, this.start);
    const to = Math.min(place + bytes, this.start + rowBytes * this.rows);
    while (from < to) {
      const row = Math.floor((from - this.start) / rowBytes + 1e-9);
      const rowStart = this.start + row * rowBytes;
      const end = Math.min(to, rowStart + rowBytes);
      if (row >= this.rows) return;
      draw((from - rowStart) / rowBytes * width, (end - rowStart) / rowBytes * width, row);
      if (end <= from) return;
      from = end;
    }
  }

  draw() {
    this.begin();
    const known = this.pane.trace.hasAddresses;
    this.showEmpty(known ? '' : 'This trace holds no addresses: only how much was live is known, not where.');
    this.drawMoment();
  }

  drawMoment() {
    const {trace, shown, axis, places, colours} = this.pane;
    if (!trace.hasAddresses) return;
    this.clamp();
    const raster = this.raster = this.rasterFor(this.plotWidth, this.plotHeight);
    const panel = pixelOf(themeColour('panel'));
    const absent = pixelOf(themeColour('absent'));
    const hole = pixelOf(themeColour('hole'));
    raster.clear(panel);
    const step = (ROW_PIXELS + ROW_GAP) * this.scale;
    const high = ROW_PIXELS * this.scale;
    const topOf = (row) => Math.round(row * step);
    const bottomOf = (row) => Math.min(raster.height, Math.round(row * step + high));
    const paint = (place, bytes, pixel) => this.eachRow(place, bytes, (left, right, row) => {
      raster.fill(Math.floor(left), topOf(row), Math.min(raster.width, Math.ceil(right)), bottomOf(row), pixel, NOTHING);
    });
    const segments = this.history.at(shown);
    paint(0, axis.total, absent);
    if (this.history.known) {
      for (const {from, to} of segments) {
        const place = axis.placeOf(from);
        if (place >= 0) paint(place, to - from, hole);
      }
    } else {
      paint(0, axis.total, hole);
    }
    const live = [];
    trace.forEachLive(shown, (block) => {
      if (places[block] >= 0) live.push(block);
    });
    const labels = [];
    for (const block of live) {
      const pixel = colours.pixelOf(block);
      const edge = colours.edgeOf(block);
      this.eachRow(places[block], trace.roundedBytes(block), (left, right, row) => {
        if (right - left < 1) {
          raster.sum(left, topOf(row), right, bottomOf(row), pixel);
          return;
        }
        raster.box(left, topOf(row), right, bottomOf(row), pixel, edge, block);
        if (right - left > 58 * this.scale) labels.push({block, left, right, row});
      });
    }
    this.windows = this.pane.windows.at(shown);
    for (const {block, pieces} of this.windows) {
      const pixel = colours.pixelOf(block);
      for (const piece of pieces) {
        const place = axis.placeOf(piece.offset);
        if (place >= 0) this.eachRow(place, piece.bytes, (left, right, row) => {
          raster.hatch(Math.floor(left), topOf(row), Math.ceil(right), bottomOf(row), pixel, panel, block);
        });
      }
    }
    raster.showMerged(hole);
    const border = pixelOf(themeColour('border'));
    let last = -Infinity;  // lines nearer to each other than this would hide what is between
    const nearest = this.rowBytes / raster.width * 4 * this.scale;
    for (const {from} of this.history.known ? segments : []) {
      const place = axis.placeOf(from);
      if (place < 0 || place - last < nearest) continue;
      last = place;
      this.eachRow(place, 1, (left, right, row) => {
        const x = Math.min(raster.width - 1, Math.floor(left));
        for (let y = topOf(row); y < bottomOf(row); ++y) raster.pixels[y * raster.width + x] = border;
      });
    }
    const context = this.context;
    context.fillStyle = themeColour('panel');
    context.fillRect(0, 0, this.margin.left, this.height);
    context.putImageData(raster.image, Math.round(this.margin.left * this.scale), Math.round(this.margin.top * this.scale));
    this.drawRowLabels(labels);
    this.findHoles(live, segments);
  }

  drawRowLabels(labels) {
    const context = this.context;
    context.font = FONT;
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    context.fillStyle = themeColour('quiet');
    const every = Math.max(1, Math.ceil(34 / (ROW_PIXELS + ROW_GAP)));
    for (let row = 0; row < this.rows; row += every) {
      const place = this.start + row * this.rowBytes;
      context.fillText(place === 0 ? '0' : bytesText(place), this.margin.left - 8,
        this.margin.top + row * (ROW_PIXELS + ROW_GAP) + ROW_PIXELS / 2 + 0.5);
    }
    context.textAlign = 'left';
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    labels.sort((a, b) => b.right - b.left - a.right + a.left);
    const seen = new Set();
    for (const {block, left, right, row} of labels.slice(0, 400)) {
      if (seen.has(block)) continue;
      seen.add(block);
      const site = this.pane.trace.sites[this.pane.trace.site[block]];
      const wide = (right - left) / this.scale - 10;
      const text = fittingText(context, bytesText(this.pane.trace.bytes[block]) + (site ? `  ${shortSite(site)}` : ''), wide);
      context.fillStyle = this.pane.colours.inkOf(block);
      context.fillText(text, this.margin.left + left / this.scale + 5,
        this.margin.top + row * (ROW_PIXELS + ROW_GAP) + ROW_PIXELS / 2 + 0.5);
    }
    context.font = FONT;
  }

  // The free ranges inside segments, and what is said of all together.
  findHoles(live, segments) {
    const {trace} = this.pane;
    this.holes = [];
    let free = 0;
    let largest = 0;
    if (this.history.known) {
      const {offset} = trace;
      live.sort((a, b) => offset[a] - offset[b]);
      let next = 0;
      const hole = (from, to) => {
        if (to <= from) return;
        this.holes.push([from, to]);
        free += to - from;
        largest = Math.max(largest, to - from);
      };
      for (const {from, to} of segments) {
        let at = from;
        while (next < live.length && offset[live[next]] < to) {
          const block = live[next++];
          if (offset[block] < from) continue;
          hole(at, offset[block]);
          at = Math.max(at, offset[block] + trace.roundedBytes(block));
        }
        hole(at, to);
      }
      this.note.textContent = `${countText(segments.length)} segment${segments.length === 1 ? '' : 's'}, ` +
        `${countText(live.length)} block${live.length === 1 ? '' : 's'}; ${bytesText(free)} free in ` +
        `${countText(this.holes.length)} hole${this.holes.length === 1 ? '' : 's'}` +
        (this.holes.length ? `, the largest ${bytesText(largest)}` : '') + this.windowsText();
    } else {
      this.note.textContent = `${countText(live.length)} blocks; segments are not recorded`;
    }
  }

  windowsText() {
    const lent = this.windows.reduce((sum, {bytes}) => sum + bytes, 0);
    const count = this.windows.length;
    return count === 0 ? '' : `; ${countText(count)} block${count === 1 ? '' : 's'} in windows over ${bytesText(lent)} of the home (hatched)`;
  }

  drawOver() {
    if (this.drawnMoment !== this.pane.shown) {
      this.drawnMoment = this.pane.shown;
      this.drawMoment();
    }
    const context = this.beginOver();
    const {picked, trace, places} = this.pane;
    if (picked === null || !trace.hasAddresses || !trace.isLive(picked, this.pane.shown) || !this.raster) return;
    context.strokeStyle = themeColour('strong');
    context.lineWidth = 2;
    this.eachRow(places[picked], trace.roundedBytes(picked), (left, right, row) => {
      context.strokeRect(this.margin.left + left / this.scale - 1, this.margin.top + row * (ROW_PIXELS + ROW_GAP) - 1,
        Math.max(3, (right - left) / this.scale) + 2, ROW_PIXELS + 2);
    });
    context.lineWidth = 1;
  }
}
