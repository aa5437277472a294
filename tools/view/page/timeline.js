// Memory over time: what was requested, allocated and reserved, with the peaks and what ran out.
//
// A column of pixels may hold thousands of events. Its area reaches to the least of them in full
// colour and to the greatest in a lighter one, so that no peak is lost and none is made wider.

class Timeline extends TimeChart {
  constructor(pane) {
    super(pane, {title: 'Memory over time', name: 'timeline',
      help: 'Requested by the program, allocated (each block rounded up to 512 B) and reserved from the driver.'});
    this.readouts = {};
    const names = {allocated: 'allocated', requested: 'requested', reserved: 'reserved', match: 'matching'};
    for (const [name, text] of Object.entries(names)) {
      const value = element('b', {text: ''});
      const part = element('span', {class: `key ${name}`}, element('i'), `${text} `, value);
      part.hidden = name === 'match' || (name === 'reserved' && !pane.trace.hasReserved);
      this.readouts[name] = {part, value};
      this.tools.append(part);
    }
    this.freePart = element('span', {class: 'key free'});
    this.tools.append(this.freePart);
  }

  get most() {
    return this.app.mostBytes * 1.12 || 1;
  }
  yOf(bytes) {
    return this.height - this.margin.bottom - bytes / this.most * this.plotHeight;
  }

  area(columns, pyramid, draw) {
    const count = columns.from.length;
    const low = new Float32Array(count);
    const high = new Float32Array(count);
    for (let c = 0; c < count; ++c) {
      if (columns.from[c] < 0) {
        low[c] = high[c] = NaN;
        continue;
      }
      pyramid.range(columns.from[c], columns.until[c]);
      low[c] = this.yOf(pyramid.low);
      high[c] = this.yOf(pyramid.high);
    }
    draw(low, high);
  }

  fill(values, colour, alpha) {
    const context = this.context;
    const bottom = this.height - this.margin.bottom;
    const step = this.plotWidth / values.length;
    context.globalAlpha = alpha;
    context.fillStyle = colour;
    context.beginPath();
    let open = false;
    for (let c = 0; c <= values.length; ++c) {
      const x = this.margin.left + c * step;
      if (c === values.length || Number.isNaN(values[c])) {
        if (open) context.lineTo(x, bottom);
        open = false;
        continue;
      }
      if (!open) context.moveTo(x, bottom);
      open = true;
      context.lineTo(x, values[c]);
      context.lineTo(x + step, values[c]);
    }
    context.fill();
    context.globalAlpha = 1;
  }

  line(values, colour, dash, width) {
    const context = this.context;
    const step = this.plotWidth / values.length;
    context.strokeStyle = colour;
    context.lineWidth = width;
    if (!this.isCoarse) context.setLineDash(dash);
    context.beginPath();
    let open = false;
    for (let c = 0; c < values.length; ++c) {
      const x = this.margin.left + c * step;
      if (Number.isNaN(values[c])) {
        open = false;
        continue;
      }
      if (!open) context.moveTo(x, values[c]);
      open = true;
      context.lineTo(x, values[c]);
      context.lineTo(x + step, values[c]);
    }
    context.stroke();
    context.setLineDash([]);
    context.lineWidth = 1;
  }

  draw() {
    const context = this.begin();
    const trace = this.pane.trace;
    const colours = COUNTERS[themeName()];
    // Filling shapes with many corners takes longest: while somebody moves there are a third of them.
    const grain = this.isCoarse ? 3 : 1;
    const columns = this.columns(Math.round(this.plotWidth / grain));
    if (trace.hasReserved) {
      this.area(columns, this.pane.pyramids.reserved, (low, high) => {
        this.fill(high, colours.reserved, 0.13);
        this.line(high, colours.reserved, [7, 3], 1.5);
      });
    }
    this.byteAxis(0, this.most, (bytes) => this.yOf(bytes));
    this.area(columns, this.pane.pyramids.allocated, (low, high) => {
      this.fill(high, colours.allocated, 0.45);
      this.fill(low, colours.allocated, 0.8);
    });
    this.area(columns, this.pane.pyramids.requested, (low, high) => this.line(high, colours.requested, [1.5, 2.5], 1.25));
    if (this.pane.matching) {
      this.area(columns, this.pane.matching.pyramid, (low, high) => {
        this.fill(low, colours.match, 0.55);
        this.line(high, colours.match, [], 1.5);
      });
    }
    this.timeAxis();
    this.drawMarks(columns);
  }

  drawMarks() {
    const context = this.context;
    const {trace} = this.pane;
    const taken = [];
    const mark = (moment, y, text, symbol, colour) => {
      const x = this.xOf(this.pane.valueOf(moment));
      if (x < this.margin.left - 1 || x > this.width - this.margin.right + 1) return;
      context.fillStyle = colour;
      context.strokeStyle = colour;
      symbol(context, x, y);
      const wide = context.measureText(text).width + 12;
      const left = Math.min(Math.max(x - wide / 2, this.margin.left + 2), this.width - this.margin.right - wide - 2);
      for (const above of [y - 28, y - 48, y + 10, y + 30]) {
        const top = Math.min(Math.max(above, this.margin.top + 1), this.height - this.margin.bottom - 20);
        if (taken.some((box) => left < box.right + 4 && box.left < left + wide + 4 && Math.abs(box.top - top) < 20)) continue;
        taken.push({left, right: left + wide, top});
        context.fillStyle = themeColour('panel');
        context.globalAlpha = 0.88;
        context.beginPath();
        context.roundRect(left, top, wide, 18, 4);
        context.fill();
        context.globalAlpha = 1;
        context.fillStyle = themeColour('text');
        context.textAlign = 'left';
        context.fillText(text, left + 6, top + 9.5);
        return;
      }
    };
    const triangle = (c, x, y) => {
      c.beginPath();
      c.moveTo(x, y - 2);
      c.lineTo(x - 5, y - 10);
      c.lineTo(x + 5, y - 10);
      c.fill();
    };
    const {allocated, reserved} = trace.peak;
    const colours = COUNTERS[themeName()];
    mark(allocated.event, this.yOf(allocated.bytes), `peak ${bytesText(allocated.bytes)} allocated`, triangle, colours.allocated);
    if (trace.hasReserved) {
      mark(reserved.event, this.yOf(reserved.bytes), `most reserved ${bytesText(reserved.bytes)}`, triangle, colours.reserved);
    }
    const cross = (c, x, y) => {
      c.lineWidth = 2;
      c.beginPath();
      c.moveTo(x - 5, y - 5);
      c.lineTo(x + 5, y + 5);
      c.moveTo(x + 5, y - 5);
      c.lineTo(x - 5, y + 5);
      c.stroke();
      c.lineWidth = 1;
      c.setLineDash([2, 3]);
      c.beginPath();
      c.moveTo(x, y);
      c.lineTo(x, this.height - this.margin.bottom);
      c.stroke();
      c.setLineDash([]);
    };
    for (const oom of trace.ooms) {
      const y = Math.max(this.yOf(trace.allocated[oom.event] + oom.bytes), this.margin.top + 12);
      mark(oom.event, y, `out of memory: ${bytesText(oom.bytes)} asked`, cross, themeColour('alarm'));
    }
  }

  drawOver() {
    const context = this.beginOver();
    this.crosshair(context);
    const {trace, shown} = this.pane;
    const colours = COUNTERS[themeName()];
    const x = this.xOf(this.pane.valueOf(shown));
    if (x >= this.margin.left && x <= this.width - this.margin.right) {
      for (const name of ['reserved', 'allocated']) {
        if (name === 'reserved' && !trace.hasReserved) continue;
        context.fillStyle = colours[name];
        context.strokeStyle = themeColour('panel');
        context.beginPath();
        context.arc(x, this.yOf(trace[name][shown]), 4, 0, 7);
        context.fill();
        context.stroke();
      }
    }
    for (const name of ['requested', 'allocated', 'reserved']) {
      this.readouts[name].value.textContent = bytesText(trace[name][shown]);
    }
    this.readouts.match.part.hidden = !this.pane.matching;
    if (this.pane.matching) this.readouts.match.value.textContent = bytesText(this.pane.matching.values[shown]);
    const free = trace.reserved[shown] - trace.allocated[shown];
    this.freePart.textContent = trace.hasReserved && free >= 0
      ? `${bytesText(free)} free in it (${percentText(free, trace.reserved[shown]) || '0 %'})` : '';
  }
}
