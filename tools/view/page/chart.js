// Chart: a titled canvas with another above it for what moves with the pointer, and for those with
// a time axis: the axis, zoom and pan, the crosshair.

class Chart {
  constructor(pane, {title, name, help}) {
    this.pane = pane;
    this.app = pane.app;
    this.title = element('h2', {text: title, title: help});
    this.tools = element('div', {class: 'tools'});
    this.base = element('canvas');
    this.over = element('canvas', {class: 'over', tabindex: '0', role: 'img', 'aria-label': `${title}. ${help}`});
    this.empty = element('div', {class: 'empty', hidden: ''});
    this.plot = element('div', {class: 'plot'}, this.base, this.over, this.empty);
    this.root = element('section', {class: `chart ${name}`}, element('header', {}, this.title, this.tools), this.plot);
    this.context = this.base.getContext('2d', {alpha: false});
    this.overContext = this.over.getContext('2d');
    this.margin = {left: 68, right: 14, top: 8, bottom: 22};
    this.width = 0;
    this.height = 0;
    this.observer = new ResizeObserver(() => this.measure());
    this.observer.observe(this.plot);
  }

  close() {
    this.observer.disconnect();
    this.root.remove();
  }

  measure() {
    const width = Math.floor(this.plot.clientWidth);
    const height = Math.floor(this.plot.clientHeight);
    if (width === this.width && height === this.height && this.scale === devicePixelRatio) return;
    this.width = width;
    this.height = height;
    this.scale = devicePixelRatio || 1;
    for (const canvas of [this.base, this.over]) {
      canvas.width = Math.max(1, Math.round(width * this.scale));
      canvas.height = Math.max(1, Math.round(height * this.scale));
    }
    this.resized();
    this.app.redraw();
  }

  resized() {}

  get plotWidth() {
    return Math.max(1, this.width - this.margin.left - this.margin.right);
  }
  get plotHeight() {
    return Math.max(1, this.height - this.margin.top - this.margin.bottom);
  }

  begin() {
    const context = this.context;
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    context.fillStyle = themeColour('panel');
    context.fillRect(0, 0, this.width, this.height);
    context.font = FONT;
    context.textBaseline = 'middle';
    return context;
  }

  beginOver() {
    const context = this.overContext;
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = FONT;
    context.textBaseline = 'middle';
    return context;
  }

  showEmpty(text) {
    this.empty.hidden = text === '';
    this.empty.textContent = text;
  }

  // Sizes at the left, with a line across.
  byteAxis(least, most, yOf) {
    const context = this.context;
    const ticks = byteTicks(most - least, Math.max(2, this.plotHeight / 42));
    context.textAlign = 'right';
    for (const {value, text} of ticks) {
      const y = Math.round(yOf(least + value)) + 0.5;
      context.strokeStyle = themeColour('grid');
      context.beginPath();
      context.moveTo(this.margin.left, y);
      context.lineTo(this.width - this.margin.right, y);
      context.stroke();
      context.fillStyle = themeColour('quiet');
      context.fillText(least === 0 ? text : (value === 0 ? bytesText(least) : `+${text}`), this.margin.left - 8, y);
    }
  }

  // A raster of the plot's size, in the screen's own pixels: that one, if it is so large.
  rasterFor(width, height, raster = this.raster) {
    const w = Math.max(1, Math.round(width * this.scale));
    const h = Math.max(1, Math.round(height * this.scale));
    return raster && raster.width === w && raster.height === h ? raster : new Raster(w, h);
  }

  pointerAt(event) {
    const box = this.over.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
}

const FONT = '12px system-ui, "DejaVu Sans", sans-serif';

class TimeChart extends Chart {
  constructor(pane, options) {
    super(pane, options);
    // d3 5 holds the event itself, later versions hand it over.
    const now = (event) => d3.event ?? event;
    const asks = (event) => !event.button && !(event.type === 'wheel' && event.shiftKey) && event.type !== 'dblclick';
    this.zoom = d3.zoom()
      .filter((given) => asks(now(given)))
      .wheelDelta((given) => -now(given).deltaY * (now(given).deltaMode === 1 ? 0.06 : now(given).deltaMode ? 1 : 0.0025))
      .on('zoom', (given) => {
        const event = now(given);
        if (!event.sourceEvent) return;
        const [x0, x1] = event.transform.rescaleX(this.baseScale()).domain();
        this.panned(event);
        this.app.setView(x0, x1);
      });
    d3.select(this.over).call(this.zoom).on('dblclick.zoom', null);
    this.over.addEventListener('pointermove', (event) => this.hovered(...this.pointerAt(event), event));
    this.over.addEventListener('pointerleave', () => this.left());
    this.over.addEventListener('click', (event) => this.clicked(...this.pointerAt(event), event));
    this.over.addEventListener('wheel', (event) => {
      if (!event.shiftKey) return;
      event.preventDefault();
      this.zoomedUp((event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, this.pointerAt(event)[1]);
    }, {passive: false});
  }

  panned() {}
  zoomedUp() {}

  // While somebody moves through very many blocks, or frames come late, less is drawn.
  get isCoarse() {
    return this.app.moving && (this.app.late || this.pane.trace.blocks > 20000);
  }

  baseScale() {
    return d3.scaleLinear(this.app.whole, [this.margin.left, this.width - this.margin.right]);
  }

  // Tells d3 what is shown, so that the next turn of the wheel goes on from there.
  synchronise() {
    const [from, to] = this.app.whole;
    const [x0, x1] = this.app.view;
    const scale = (to - from) / (x1 - x0);
    const shift = this.margin.left - scale * this.baseScale()(x0);
    this.zoom.scaleExtent([1, this.app.deepest]);
    const area = [[this.margin.left, 0], [this.width - this.margin.right, this.height]];
    this.zoom.extent(area).translateExtent(area);
    this.over.__zoom = d3.zoomIdentity.translate(shift, 0).scale(scale);
  }

  xOf(value) {
    const [x0, x1] = this.app.view;
    return this.margin.left + (value - x0) / (x1 - x0) * this.plotWidth;
  }
  valueAt(x) {
    const [x0, x1] = this.app.view;
    return x0 + (x - this.margin.left) / this.plotWidth * (x1 - x0);
  }

  // Of each of `count` columns the moments it shows, [from, until); -1 where there is nothing.
  columns(count, view = this.app.view) {
    const pane = this.pane;
    const [x0, x1] = view;
    const from = new Int32Array(count).fill(-1);
    const until = new Int32Array(count).fill(-1);
    const begin = pane.valueOf(pane.trace.first);
    const end = pane.endValue;
    const step = (x1 - x0) / count;
    let last = pane.momentAt(x0);
    for (let c = 0; c < count; ++c) {
      const right = x0 + (c + 1) * step;
      const moment = pane.momentAt(right);
      if (right > begin && right - step < end) {
        from[c] = last;
        until[c] = moment + 1;
      }
      last = moment;
    }
    return {from, until};
  }

  timeAxis() {
    const context = this.context;
    const [x0, x1] = this.app.view;
    const bottom = this.height - this.margin.bottom;
    context.fillStyle = themeColour('quiet');
    context.textAlign = 'center';
    for (const {value, text} of this.app.axisTicks(Math.max(2, this.plotWidth / 110))) {
      const x = Math.round(this.xOf(value)) + 0.5;
      context.strokeStyle = themeColour('grid');
      context.beginPath();
      context.moveTo(x, bottom);
      context.lineTo(x, bottom + 4);
      context.stroke();
      const half = context.measureText(text).width / 2;
      if (x - half > this.margin.left - 30 && x + half < this.width) context.fillText(text, x, bottom + 13);
    }
    context.strokeStyle = themeColour('grid');
    context.strokeRect(this.margin.left + 0.5, this.margin.top + 0.5, this.plotWidth - 1, this.plotHeight - 1);
  }

  // The selected moment as a line, the one under the pointer as a finer one.
  crosshair(context) {
    const pane = this.pane;
    const line = (moment, dash, colour) => {
      const x = Math.round(this.xOf(pane.valueOf(moment))) + 0.5;
      if (x < this.margin.left || x > this.width - this.margin.right) return;
      context.strokeStyle = colour;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(x, this.margin.top);
      context.lineTo(x, this.height - this.margin.bottom);
      context.stroke();
      context.setLineDash([]);
    };
    line(pane.selected, [], themeColour('strong'));
    if (pane.hover !== null && pane.hover !== pane.selected) line(pane.hover, [3, 3], themeColour('text'));
  }

  inPlot(x, y) {
    return x >= this.margin.left && x <= this.width - this.margin.right && y >= this.margin.top &&
      y <= this.height - this.margin.bottom;
  }

  hovered(x) {
    if (x >= this.margin.left && x <= this.width - this.margin.right) this.app.hoverAt(this.valueAt(x));
    else this.left();
  }
  left() {
    this.app.hoverAt(null);
    this.app.hideTip();
  }
  clicked(x, y) {
    if (!this.inPlot(x, y)) return;
    this.app.activate(this.pane);
    this.app.selectAt(this.valueAt(x));
  }
}
