// The page: which traces are shown, of which stretch and moment, and what keys and links do.

const plainBytes = (bytes) => `${bytes / KIB ** unitOf(bytes)} ${UNITS[unitOf(bytes)]}`;

const MOST_PANES = 4;
// How long a frame may work on pictures that take several: less where frames come late.
const STEPS_MS = [2, 7];
const LATE_MS = 20;

// How blocks are coloured: by call site, size, lifetime or stream.
const SIZE_CLASSES = [0, 4 * KIB, 32 * KIB, 256 * KIB, KIB ** 2, 4 * KIB ** 2, 16 * KIB ** 2, 64 * KIB ** 2, 256 * KIB ** 2, KIB ** 3];

class Colours {
  constructor(pane) {
    this.pane = pane;
    if (pane.trace.hasSites) this.rankSites();
  }

  rebuild() {
    const {trace, app} = this.pane;
    const series = SERIES[themeName()];
    const panel = pixelOf(themeColour('panel'));
    const mode = app.colouring === 'site' && !trace.hasSites ? 'size' : app.colouring;
    this.mode = mode;
    let colours = [];
    let keyOf = null;
    if (mode === 'site') {
      colours = series;
      keyOf = (block) => this.rank[trace.site[block]];
    } else if (mode === 'stream') {
      colours = series;
      keyOf = (block) => trace.stream[block] % series.length;
    } else {
      const dark = themeName() === 'dark';
      colours = Array.from({length: 10}, (_, i) => d3.interpolatePlasma((dark ? 0.16 : 0.02) + (dark ? 0.083 : 0.092) * i));
      const span = Math.log2(Math.max(2, trace.count - trace.first));
      keyOf = mode === 'size'
        ? (block) => {
          let key = 0;
          while (key < 9 && trace.bytes[block] >= SIZE_CLASSES[key + 1]) ++key;
          return key;
        }
        : (block) => Math.min(9, Math.floor(Math.log2(Math.max(1, trace.freedAt[block] - Math.max(trace.first, trace.allocAt[block]))) / span * 9.99));
    }
    if (this.keyed !== mode) {
      this.keyed = mode;
      this.keys = new Uint8Array(trace.blocks);  // of each block: which colour
      for (let b = 0; b < trace.blocks; ++b) this.keys[b] = keyOf(b);
    }
    this.colours = colours;
    this.pixels = colours.map(pixelOf);
    this.dimmed = this.pixels.map((pixel) => mixedPixel(pixel, panel, 0.86));
    this.edges = this.pixels.map((pixel) => mixedPixel(pixel, panel, 0.55));
    this.dimmedEdges = this.dimmed.map((pixel) => mixedPixel(pixel, panel, 0.55));
    this.inks = colours.map((colour) => d3.lab(colour).l > 58 ? '#10151c' : '#ffffff');
    this.series = series;
  }

  // The call sites that hold most get colours of their own; the others share the last one.
  rankSites() {
    if (this.rank) return;
    const {trace} = this.pane;
    const held = new Float64Array(trace.sites.length);
    for (let b = 0; b < trace.blocks; ++b) held[trace.site[b]] += trace.bytes[b] * (trace.freedAt[b] - trace.allocAt[b]);
    const weight = new Map();  // of sites that differ in their stack alone, together
    trace.sites.forEach((site, index) => weight.set(site, (weight.get(site) ?? 0) + held[index]));
    const names = [...weight].sort((a, b) => b[1] - a[1]).map(([name]) => name);
    const last = SERIES.dark.length - 1;
    const place = new Map(names.map((name, index) => [name, Math.min(index, last)]));
    this.rank = Uint8Array.from(trace.sites, (site) => place.get(site) ?? last);
    const all = [...weight.values()].reduce((sum, value) => sum + value, 0);
    this.namedShare = 1 - (weight.get('') ?? 0) / Math.max(1, all);
    this.topSites = names.slice(0, last);
    this.otherSites = names.length - this.topSites.length;
  }

  pixelOf(block) {
    const {filter} = this.pane;
    return (filter && !filter[block] ? this.dimmed : this.pixels)[this.keys[block]];
  }

  edgeOf(block) {
    const {filter} = this.pane;
    return (filter && !filter[block] ? this.dimmedEdges : this.edges)[this.keys[block]];
  }

  inkOf(block) {
    const {filter} = this.pane;
    return filter && !filter[block] ? themeColour('quiet') : this.inks[this.keys[block]];
  }

  // [colour, text] of each key that occurs.
  legend() {
    const {trace} = this.pane;
    if (this.mode === 'site') {
      const named = this.topSites.map((site, index) => [this.colours[index], site || 'no call site']);
      return this.otherSites > 0 ? [...named, [this.colours.at(-1), `${countText(this.otherSites)} others`]] : named;
    }
    if (this.mode === 'stream') {
      return trace.about.streams.slice(0, 10).map((stream, index) => [this.colours[index], `stream ${stream}`]);
    }
    if (this.mode === 'size') {
      return this.colours.map((colour, index) => [colour,
        index === 0 ? `< ${plainBytes(SIZE_CLASSES[1])}`
          : `${index === 1 ? 'from ' : ''}${plainBytes(SIZE_CLASSES[index])}${index === 9 ? ' up' : ''}`]);
    }
    return this.colours.map((colour, index) => [colour, index === 0 ? 'shortest life' : index === 9 ? 'longest life' : '']);
  }
}

// A trace on the page, with its charts.
class Pane {
  constructor(app, index, trace) {
    this.app = app;
    this.index = index;
    this.trace = trace;
    this.pyramids = {
      requested: new Pyramid(trace.requested), allocated: new Pyramid(trace.allocated), reserved: new Pyramid(trace.reserved)};
    this.axis = new AddressAxis(trace.about.ranges);
    this.windows = new WindowHistory(trace);
    this.selected = trace.peak.allocated.event;
    this.hover = null;
    this.picked = null;
    this.matching = null;
    this.timeStart = trace.times ? trace.times[Math.min(trace.initial, trace.count - 1)] : 0;
    this.colours = new Colours(this);
    this.name = element('b', {class: 'name', text: app.titleOf(index)});
    this.moment = element('span', {class: 'moment'});
    this.numbers = element('span', {class: 'numbers'});
    this.strip = element('div', {class: 'strip', onclick: () => app.activate(this)}, this.name, this.moment, this.numbers);
    this.timeline = new Timeline(this);
    this.blocks = new Blocks(this);
    this.addresses = new AddressSpace(this);
    this.flame = new Flame(this);
    this.details = new Details(this);
    this.legend = element('div', {class: 'legend'});
    this.blocks.root.append(this.legend);
    this.charts = [this.timeline, this.blocks, this.addresses, this.flame];
    this.showNumbers();
  }

  close() {
    for (const part of [...this.charts, this.details]) part.close();
    this.strip.remove();
  }

  get filter() {
    return this.matching ? this.matching.found : null;
  }
  get shown() {
    return this.hover ?? this.selected;
  }
  get onTime() {
    return this.app.axis === 'time';
  }
  // For loops over millions: a moment's place on the axis is values[moment] - valueShift, or
  // moment - valueShift where there are no values.
  get values() {
    return this.onTime ? this.trace.times : null;
  }
  get valueShift() {
    return this.onTime ? this.timeStart : this.trace.initial - 1;
  }

  // Where each block lies on the axis of addresses; -1 where that is not known.
  get places() {
    if (!this.allPlaces) {
      const {offset} = this.trace;
      this.allPlaces = new Float64Array(offset.length);
      for (let b = 0; b < offset.length; ++b) this.allPlaces[b] = this.axis.placeOf(offset[b]);
    }
    return this.allPlaces;
  }

  valueOf(moment) {
    return this.onTime ? this.trace.times[moment] - this.timeStart : moment - this.trace.initial + 1;
  }
  get endValue() {
    const {trace} = this;
    if (!this.onTime) return trace.count - trace.initial + 1;
    const last = trace.times[trace.count - 1] - this.timeStart;
    return last + Math.max(1, last * 0.002);
  }

  momentAt(value) {
    const {trace} = this;
    if (!this.onTime) return Math.min(trace.count - 1, Math.max(trace.first, Math.floor(value) + trace.initial - 1));
    const wanted = value + this.timeStart;
    let least = trace.first;
    let most = trace.count;
    while (least + 1 < most) {
      const middle = (least + most) >> 1;
      if (trace.times[middle] <= wanted) least = middle;
      else most = middle;
    }
    return least;
  }

  momentText(moment) {
    const number = this.trace.eventNumber(moment);
    if (number <= 0) return 'before the recording';
    return countText(number) + (this.trace.times ? `, after ${durationText(this.trace.times[moment] - this.timeStart)}` : '');
  }

  spanText(from, to) {
    const events = `${countText(to - from)} event${to - from === 1 ? '' : 's'}`;
    return this.trace.times ? `${events}, ${durationText(this.trace.times[to] - this.trace.times[from])}` : events;
  }

  showNumbers() {
    const {trace} = this;
    const {about, peak} = trace;
    const number = (name, value, text) => element('span', {class: name, 'data-value': String(value), text});
    this.numbers.replaceChildren(
      number('count-events', trace.count, `${countText(trace.count)} events`),
      number('count-blocks', trace.blocks, `${countText(trace.blocks)} blocks`),
      number('peak-allocated', peak.allocated.bytes, `peak allocated ${bytesText(peak.allocated.bytes)}`),
      number('peak-requested', peak.requested.bytes, `requested ${bytesText(peak.requested.bytes)}`),
      trace.hasReserved ? number('peak-reserved', peak.reserved.bytes, `reserved ${bytesText(peak.reserved.bytes)}`)
        : number('peak-reserved', '', 'reserved: not recorded'));
    if (trace.ooms.length) this.numbers.append(number('count-ooms', trace.ooms.length, `× ${countText(trace.ooms.length)} out of memory`));
    if (trace.initial) {
      this.numbers.title = `${countText(trace.initial)} of the events rebuild what was live before the recording began.`;
    }
    const agree = peak.allocated.bytes === about.peak_allocated_bytes && peak.requested.bytes === about.peak_requested_bytes &&
      (!trace.hasReserved || peak.reserved.bytes === about.peak_reserved_bytes);
    if (!agree) this.app.complain(`${trace.name}: the page and the command count differently; please report it.`);
  }

  showMoment() {
    const {trace, shown} = this;
    const number = trace.eventNumber(shown);
    const time = trace.times ? ` · ${durationText(Math.max(0, trace.times[shown] - this.timeStart))}` : '';
    this.moment.textContent = number <= 0 ? 'before the recording'
      : `event ${countText(number)} of ${countText(trace.recorded)}${time}`;
    this.moment.dataset.event = String(shown);
  }

  showLegend() {
    this.legend.replaceChildren(...this.colours.legend().map(([colour, text]) => {
      const swatch = element('i');
      swatch.style.background = colour;
      const entry = element('span', {title: text}, swatch, shortSite(text));
      if (this.colours.mode === 'site') {
        entry.className = 'choice';
        entry.addEventListener('click', () => this.app.search(text));
      }
      return entry;
    }));
  }
}

class App {
  constructor(about) {
    this.about = about;
    this.loaded = new Map();
    this.panes = [];
    this.active = null;
    this.axis = 'events';
    this.colouring = 'site';
    this.filter = new Filter(this);
    this.filterText = '';
    this.whole = [0, 1];
    this.view = [0, 1];
    this.pending = false;
    this.dirty = false;
    this.dirtyCharts = new Set();
    this.stepsMs = STEPS_MS[1];
    this.late = false;
    this.frameAt = 0;
    this.version = 0;  // of all that is drawn but the stretch that is shown
    this.moving = false;
    this.frames = 0;
    this.top = document.getElementById('top');
    this.findings = document.getElementById('findings');
    this.main = document.getElementById('main');
    this.tip = document.getElementById('tip');
    this.buildTop();
    document.addEventListener('keydown', (event) => this.key(event));
    addEventListener('hashchange', () => this.followLink());
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      if (!this.themeChosen) this.setTheme(matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
    });
  }

  titleOf(index) {
    return this.about.traces[index].title;
  }

  buildTop() {
    const traces = this.about.traces;
    const options = () => traces.map(({title}, index) => element('option', {value: String(index), text: title}));
    this.choice = element('select', {'aria-label': 'Trace', onchange: () => this.show([Number(this.choice.value), ...this.shownIndices().slice(1)])}, ...options());
    this.choice.hidden = traces.length < 2;
    // One more than are chosen is offered.
    this.others = Array.from({length: Math.min(MOST_PANES, traces.length) - 1}, (_, i) => element('select', {
      'aria-label': i === 0 ? 'Compare with' : 'And with', onchange: () => this.show([this.panes[0].index, ...this.others
        .filter(({value}) => value !== '').map(({value}) => Number(value))])},
    element('option', {value: '', text: i === 0 ? 'compare with …' : 'and with …'}), ...options()));
    this.alone = element('b', {class: 'alone', text: traces.length === 1 ? traces[0].title : '', title: traces[0].title});
    this.axisButtons = {
      events: element('button', {text: 'events', title: 'One step for each event', onclick: () => this.setAxis('events')}),
      time: element('button', {text: 'time', title: 'As time passed', onclick: () => this.setAxis('time')}),
    };
    this.colourChoice = element('select', {'aria-label': 'Colour of blocks', onchange: () => {
      this.colouring = this.colourChoice.value;
      this.colouringChosen = true;
      this.recolour();
    }}, ...[['site', 'colour: call site'], ['size', 'colour: size'], ['lifetime', 'colour: lifetime'], ['stream', 'colour: stream']]
      .map(([value, text]) => element('option', {value, text})));
    this.themeButton = element('button', {id: 'theme', title: 'Dark or light (t)', 'aria-label': 'Dark or light', text: '◐', onclick: () => this.toggleTheme()});
    this.helpButton = element('button', {id: 'help-button', title: 'Keys (?)', 'aria-label': 'Help', text: '?', onclick: () => this.toggleHelp()});
    this.top.append(element('h1', {text: 'gapless view'}), this.alone, this.choice, ...this.others, this.filter.root,
      element('span', {class: 'space'}), this.colourChoice,
      element('span', {class: 'switch', id: 'axis'}, this.axisButtons.events, this.axisButtons.time), this.themeButton, this.helpButton);
  }

  // What was found in the traces that are shown.
  tell(indices) {
    const said = indices.flatMap((index) => {
      const {title, findings} = this.about.traces[index];
      const named = indices.length > 1 && findings.length > 0 ? [element('p', {class: 'of', text: title})] : [];
      return [...named, ...findings.map((text, i) => element('p', {class: i === 0 ? 'first' : '', text}))];
    });
    this.findings.replaceChildren(...said);
    this.findings.hidden = said.length === 0;
  }

  complain(text) {
    this.findings.hidden = false;
    this.findings.append(element('p', {class: 'alarm', text}));
  }

  shownIndices() {
    return this.panes.map((pane) => pane.index);
  }

  async traceOf(index) {
    if (!this.loaded.has(index)) {
      const table = await unpackElement(`trace-${index}`);
      this.loaded.set(index, new TraceData(table));
    }
    return this.loaded.get(index);
  }

  async show(indices) {
    const wanted = [...new Set(indices)].slice(0, MOST_PANES);
    const traces = [];
    for (const index of wanted) traces.push(await this.traceOf(index));
    this.tell(wanted);
    for (const pane of this.panes) pane.close();
    this.panes = wanted.map((index, i) => new Pane(this, index, traces[i]));
    this.active = this.panes[0];
    this.choice.value = String(wanted[0]);
    this.others.forEach((select, i) => {
      select.value = i + 1 < wanted.length ? String(wanted[i + 1]) : '';
      select.hidden = i + 1 > wanted.length;
    });
    if (this.axis === 'time' && !this.timed) this.axis = 'events';
    this.colourChoice.querySelector('[value=site]').disabled = !traces.some((trace) => trace.hasSites);
    this.colourChoice.querySelector('[value=stream]').disabled = !traces.some((trace) => trace.about.streams.length > 1);
    this.chooseColouring();
    this.filter.offerStreams(traces);
    this.mostBytes = Math.max(...traces.map((trace) =>
      Math.max(trace.peak.allocated.bytes, trace.hasReserved ? trace.peak.reserved.bytes : 0)));
    this.mostAllocated = Math.max(...traces.map((trace) => trace.peak.allocated.bytes));
    this.layout();
    this.measureWhole();
    this.showAll();
    this.recolour();
    this.filterChanged();
  }

  // By call site where most of the memory has one; what somebody chose stays.
  chooseColouring() {
    const named = this.panes.some(({trace, colours}) => trace.hasSites && colours.namedShare > 0.5);
    if (!this.colouringChosen) this.colouring = named ? 'site' : 'size';
    this.colourChoice.value = this.colouring;
    if (this.colourChoice.selectedOptions[0].disabled) this.colourChoice.value = this.colouring = 'size';
  }

  // Whether something is still to be drawn, or to be drawn in full.
  get busy() {
    return this.pending || this.panes.some(({blocks}) => blocks.job !== null || blocks.done?.moving);
  }

  get timed() {
    return this.panes.every((pane) => pane.trace.times !== null);
  }

  layout() {
    const several = this.panes.length > 1;
    this.main.className = several ? `several of-${this.panes.length}` : 'one';
    const [pane] = this.panes;
    if (several) {
      this.main.replaceChildren(
        ...this.panes.map(({strip, timeline, blocks, addresses}) =>
          element('div', {class: 'column'}, strip, timeline.root, blocks.root, addresses.root)),
        element('div', {class: 'bottom'}, this.active.flame.root, this.active.details.root));
    } else {
      this.main.replaceChildren(pane.strip,
        element('div', {class: 'column left'}, pane.timeline.root, pane.blocks.root),
        element('div', {class: 'column right'}, pane.addresses.root, pane.flame.root, pane.details.root));
    }
    for (const pane of this.panes) pane.strip.classList.toggle('active', several && pane === this.active);
  }

  activate(pane) {
    if (pane === this.active) return;
    this.active = pane;
    this.layout();
    this.redraw();
  }

  // --- the stretch that is shown --------------------------------------------------------------

  measureWhole() {
    const from = Math.min(...this.panes.map((pane) => pane.valueOf(pane.trace.first)));
    const to = Math.max(...this.panes.map((pane) => pane.endValue));
    this.whole = [from, to];
    this.deepest = Math.max(1, (to - from) / 8);
    for (const [axis, button] of Object.entries(this.axisButtons)) {
      button.setAttribute('aria-pressed', String(axis === this.axis));
      button.disabled = axis === 'time' && !this.timed;
      if (axis === 'time' && !this.timed) button.title = 'No times are recorded';
    }
  }

  setView(x0, x1) {
    const [from, to] = this.whole;
    const span = Math.min(to - from, Math.max((to - from) / this.deepest, x1 - x0));
    const begin = Math.min(Math.max(from, x0 + (x1 - x0 - span) / 2), to - span);
    this.view = [begin, begin + span];
    for (const pane of this.panes) {
      pane.timeline.synchronise();
      pane.blocks.synchronise();
    }
    this.moved();
    this.writeLink();
  }

  // Draws at once, and in full when nothing moves any more.
  moved() {
    this.moving = true;
    clearTimeout(this.restTimer);
    this.restTimer = setTimeout(() => {
      this.moving = this.late = false;
      this.redrawTimes();
    }, 150);
    this.redrawTimes();
  }

  // What has a time axis, for it shows another stretch.
  redrawTimes() {
    this.timesDirty = true;
    this.redrawOver();
  }

  showAll() {
    this.setView(...this.whole);
  }

  zoomBy(factor) {
    const [x0, x1] = this.view;
    const centre = Math.min(x1, Math.max(x0, this.active.valueOf(this.active.shown)));
    this.setView(centre - (centre - x0) * factor, centre + (x1 - centre) * factor);
  }

  setAxis(axis) {
    if (axis === this.axis || (axis === 'time' && !this.timed)) return;
    const pane = this.active;
    const [from, to] = this.view.map((value) => pane.momentAt(value));
    const all = this.view[0] <= this.whole[0] && this.view[1] >= this.whole[1];
    this.axis = axis;
    this.measureWhole();
    if (all) this.showAll();
    else this.setView(pane.valueOf(from), pane.valueOf(to));
  }

  axisTicks(count) {
    const [x0, x1] = this.view;
    if (this.axis === 'events') {
      return d3.ticks(x0, x1, count).filter(Number.isInteger).map((value) => ({value, text: countText(value)}));
    }
    const span = x1 - x0;
    const [unit, name] = span > 2e6 ? [1e6, 's'] : span > 2e3 ? [1e3, 'ms'] : [1, 'µs'];
    return d3.ticks(x0 / unit, x1 / unit, count).map((value) => ({value: value * unit, text: `${+value.toFixed(6)} ${name}`}));
  }

  // --- the moment -----------------------------------------------------------------------------

  hoverAt(value) {
    for (const pane of this.panes) pane.hover = value === null ? null : pane.momentAt(value);
    this.redrawOver();
  }

  selectAt(value) {
    for (const pane of this.panes) pane.selected = pane.momentAt(value);
    this.redrawOver();
    this.writeLink();
  }

  selectMoment(pane, moment) {
    const wanted = Math.min(pane.trace.count - 1, Math.max(pane.trace.first, moment));
    const value = pane.valueOf(wanted);
    for (const other of this.panes) {
      other.hover = null;
      other.selected = other === pane ? wanted : other.momentAt(value);
    }
    const [x0, x1] = this.view;
    if (value < x0 || value > x1) this.setView(value - (x1 - x0) / 2, value + (x1 - x0) / 2);
    this.redrawOver();
    this.writeLink();
  }

  selectBlock(pane, block) {
    pane.picked = block >= 0 ? block : null;
    this.redrawOver();
  }

  nextOom(direction) {
    const {trace, selected} = this.active;
    const events = trace.ooms.map(({event}) => event);
    const next = direction > 0 ? events.find((event) => event > selected) ?? events[0]
      : events.findLast((event) => event < selected) ?? events.at(-1);
    if (next !== undefined) this.selectMoment(this.active, next);
  }

  // --- what is looked for ---------------------------------------------------------------------

  search(text) {
    this.filter.text.value = this.filter.text.value === text ? '' : text;
    this.filterChanged();
  }

  filterChanged() {
    this.filterText = this.filter.asText;
    for (const pane of this.panes) pane.matching = this.filter.of(pane.trace);
    this.filter.result.textContent = this.panes.some((pane) => pane.matching)
      ? this.panes.map(({matching}) => `${countText(matching.count)} blocks, ${bytesText(matching.peak)} at most`).join(' | ') : '';
    this.redraw();
  }

  // --- drawing --------------------------------------------------------------------------------

  redraw() {
    this.dirty = true;
    ++this.version;
    this.redrawOver();
  }

  redrawChart(chart) {
    this.dirtyCharts.add(chart);
    this.redrawOver();
  }

  redrawOver() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame((now) => {
      this.pending = false;
      this.measureFrame(now);
      const all = this.dirty;
      const times = all || this.timesDirty;
      const charts = this.dirtyCharts;
      this.dirty = this.timesDirty = false;
      this.dirtyCharts = new Set();
      ++this.frames;
      for (const pane of this.panes) {
        for (const chart of pane.charts) {
          if (!chart.root.isConnected || chart.width < 40 || chart.height < 40) continue;
          if (chart instanceof TimeChart) chart.synchronise();
          if (all || charts.has(chart) || (times && chart instanceof TimeChart)) chart.draw();
          chart.drawOver();
        }
        pane.showMoment();
        if (pane.details.root.isConnected) pane.details.update();
      }
    });
  }

  // Frames that follow one another tell how much time there is.
  measureFrame(now) {
    const took = now - this.frameAt;
    this.frameAt = now;
    if (took > 500) return;  // nothing moved
    if (this.moving && took > LATE_MS) this.late = true;
    const [least, most] = STEPS_MS;
    this.stepsMs = Math.min(most, Math.max(least, this.stepsMs * (took > LATE_MS ? 0.6 : 1.1)));
  }

  recolour() {
    for (const pane of this.panes) {
      pane.colours.rebuild();
      pane.showLegend();
    }
    this.redraw();
  }

  setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    this.recolour();
  }

  toggleTheme() {
    this.themeChosen = true;
    this.setTheme(themeName() === 'dark' ? 'light' : 'dark');
  }

  tipOfBlock(pane, block, event, chartHasBands = false, first = []) {
    if (block >= 0) {
      const facts = [...first, ...Details.facts(pane, block)];
      const own = pane.trace.framesOf(pane.trace.site[block]).filter(({kind}) => kind === 0).slice(1, 4);
      this.showTip([...facts, ...own.map(({text}) => ['called from', text])], event);
    } else if (block <= MERGED) {
      const of = pane.colours.legend()[MERGED - block];
      this.showTip([['many blocks', 'each smaller than a pixel; zoom in to see them'],
        ...(of && of[1] && chartHasBands ? [[pane.colours.mode, of[1]]] : [])], event);
    } else {
      this.hideTip();
    }
  }

  showTip(lines, event) {
    if (lines.length === 0) {
      this.hideTip();
      return;
    }
    this.tip.replaceChildren(Details.table(lines));
    this.tip.hidden = false;
    const box = this.tip.getBoundingClientRect();
    const x = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 12 : event.clientX + 16;
    const y = Math.min(event.clientY + 16, innerHeight - box.height - 8);
    this.tip.style.left = `${Math.max(4, x)}px`;
    this.tip.style.top = `${Math.max(4, y)}px`;
  }

  hideTip() {
    this.tip.hidden = true;
  }

  // --- keys and links -------------------------------------------------------------------------

  toggleHelp() {
    const help = document.getElementById('help');
    if (help.open) help.close();
    else help.showModal();
  }

  key(event) {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === 'Escape') {
      if (typing) event.target.blur();
      if (this.filter.isOn) {
        this.filter.clear();
        this.filterChanged();
      } else if (this.active) {
        for (const pane of this.panes) pane.picked = null;
        this.active.flame.focus = 0;
        this.redraw();
      }
      return;
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !this.active) return;
    const pane = this.active;
    const step = event.shiftKey ? 100 : 1;
    const actions = {
      ArrowLeft: () => this.selectMoment(pane, pane.selected - step),
      ArrowRight: () => this.selectMoment(pane, pane.selected + step),
      Home: () => this.selectMoment(pane, pane.trace.first),
      End: () => this.selectMoment(pane, pane.trace.count - 1),
      '+': () => this.zoomBy(0.6),
      '=': () => this.zoomBy(0.6),
      '-': () => this.zoomBy(1 / 0.6),
      0: () => {
        for (const each of this.panes) {
          each.blocks.up = null;
          each.addresses.showWhole();
        }
        this.showAll();
      },
      p: () => this.selectMoment(pane, pane.trace.peak.allocated.event),
      r: () => this.selectMoment(pane, pane.trace.peak.reserved.event),
      o: () => this.nextOom(1),
      O: () => this.nextOom(-1),
      t: () => this.toggleTheme(),
      x: () => this.setAxis(this.axis === 'events' ? 'time' : 'events'),
      '/': () => this.filter.text.focus(),
      '?': () => this.toggleHelp(),
    };
    if (!Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    actions[event.key]();
  }

  writeLink() {
    clearTimeout(this.linkTimer);
    this.linkTimer = setTimeout(() => {
      if (!this.panes.length) return;
      const [a, ...others] = this.panes;
      const parts = [`trace=${a.index}`, ...others.map(({index}) => `with=${index}`)];
      parts.push(`event=${a.trace.eventNumber(a.selected)}`);
      if (this.axis === 'time') parts.push('axis=time');
      if (this.view[0] > this.whole[0] || this.view[1] < this.whole[1]) {
        parts.push(`from=${+this.view[0].toFixed(2)}`, `to=${+this.view[1].toFixed(2)}`);
      }
      this.link = `#${parts.join('&')}`;
      history.replaceState(null, '', this.link);
    }, 200);
  }

  async followLink() {
    if (location.hash === this.link) return;
    const link = new URLSearchParams(location.hash.slice(1));
    const number = (name) => link.has(name) && Number.isFinite(Number(link.get(name))) ? Number(link.get(name)) : null;
    const known = (index) => index !== null && Number.isInteger(index) && index >= 0 && index < this.about.traces.length;
    const asked = [number('trace'), ...link.getAll('with').map((text) => text === '' ? null : Number(text))].filter(known);
    const indices = asked.length ? asked : this.panes.length ? this.shownIndices() : [0];
    if (String(indices) !== String(this.shownIndices())) await this.show(indices);
    if (link.get('axis') === 'time') this.setAxis('time');
    else if (link.has('event')) this.setAxis('events');
    if (number('from') !== null && number('to') > number('from')) this.setView(number('from'), number('to'));
    if (number('event') !== null) {
      this.selectMoment(this.panes[0], Math.floor(number('event')) + this.panes[0].trace.initial - 1);
    }
  }
}

async function start() {
  const loading = document.getElementById('loading');
  try {
    if (typeof DecompressionStream === 'undefined') {
      throw new Error('This browser cannot unpack the data. It needs Chrome 111, Firefox 113, Safari 16.4 or newer.');
    }
    document.documentElement.dataset.theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
    const about = JSON.parse(new TextDecoder().decode(await unpackElement('about')));
    const app = new App(about);
    window.gaplessView = app;
    await app.followLink();
    loading.remove();
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
  } catch (error) {
    loading.textContent = `This page cannot be shown: ${error.message}`;
    console.error(error);
  }
}

start();
