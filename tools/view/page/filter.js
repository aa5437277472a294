// Filter: which blocks somebody looks for, by text of the call site or stack, size and stream.
//
//   "gelu"  8 MiB to ...  stream 0   ->   one byte a block, and what they hold over time

class Filter {
  constructor(app) {
    this.app = app;
    const changed = () => app.filterChanged();
    this.text = element('input', {type: 'search', id: 'search', placeholder: 'search call sites and stacks  /', 'aria-label': 'Text of the call site or stack', oninput: changed});
    this.least = element('input', {class: 'size', placeholder: 'from size', 'aria-label': 'Smallest size, as 8 MiB', oninput: changed});
    this.most = element('input', {class: 'size', placeholder: 'to size', 'aria-label': 'Largest size, as 1 GiB', oninput: changed});
    this.stream = element('select', {'aria-label': 'Stream', onchange: changed});
    this.result = element('span', {class: 'result', 'aria-live': 'polite'});
    this.root = element('div', {class: 'filter'}, this.text, this.least, this.most, this.stream, this.result);
  }

  offerStreams(traces) {
    const chosen = this.stream.value;
    const names = [...new Set(traces.flatMap((trace) => trace.about.streams))];
    this.stream.replaceChildren(element('option', {value: '', text: 'all streams'}),
      ...names.map((name) => element('option', {value: name, text: `stream ${name}`})));
    this.stream.value = names.includes(chosen) ? chosen : '';
    this.stream.hidden = names.length < 2;
  }

  get asText() {
    return JSON.stringify([this.text.value.trim(), this.least.value.trim(), this.most.value.trim(), this.stream.value]);
  }

  get isOn() {
    return [this.text, this.least, this.most, this.stream].some((input) => input.value.trim() !== '');
  }

  clear() {
    for (const input of [this.text, this.least, this.most, this.stream]) input.value = '';
  }

  // What matches in a trace: null where all does.
  of(trace) {
    const size = (input, otherwise) => {
      const text = input.value.trim();
      const bytes = text === '' ? otherwise : readBytes(text);
      input.setAttribute('aria-invalid', String(Number.isNaN(bytes)));
      return Number.isNaN(bytes) ? otherwise : bytes;
    };
    const least = size(this.least, 0);
    const most = size(this.most, Infinity);
    if (!this.isOn) return null;
    const stream = this.stream.value === '' ? -1 : trace.about.streams.indexOf(this.stream.value);
    const anyStream = this.stream.value === '';
    const site = this.sitesWith(trace, this.text.value.trim().toLowerCase());
    const found = new Uint8Array(trace.blocks);
    let count = 0;
    for (let b = 0; b < trace.blocks; ++b) {
      if (trace.bytes[b] < least || trace.bytes[b] > most) continue;
      if (!anyStream && trace.stream[b] !== stream) continue;
      if (site && !site[trace.site[b]]) continue;
      found[b] = 1;
      ++count;
    }
    return {found, count, ...this.heldOverTime(trace, found)};
  }

  // Of each site whether the text stands in it or in its stack; null for no text.
  sitesWith(trace, text) {
    if (text === '') return null;
    const has = (candidate) => candidate.toLowerCase().includes(text);
    const frames = trace.about.frames.map(has);
    const nodes = new Uint8Array(trace.nodeParent.length);
    for (let node = 1; node < nodes.length; ++node) {
      nodes[node] = nodes[trace.nodeParent[node]] || frames[trace.nodeFrame[node]] ? 1 : 0;
    }
    return trace.sites.map((site, index) => has(site) || nodes[trace.siteNode[index] ?? 0] === 1);
  }

  heldOverTime(trace, found) {
    const values = new Float64Array(trace.count);
    let held = 0;
    let peak = 0;
    for (let e = 0; e < trace.count; ++e) {
      const kind = trace.kinds[e];
      if (kind === ALLOC || kind === FREE) {
        const block = trace.blockOf[e];
        if (found[block]) held += kind === ALLOC ? trace.roundedBytes(block) : -trace.roundedBytes(block);
      }
      values[e] = held;
      if (e >= trace.first) peak = Math.max(peak, held);
    }
    return {values, peak, pyramid: new Pyramid(values)};
  }
}
