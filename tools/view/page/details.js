// What is known of the chosen block, or else of the moment: the event, and the largest live blocks.

class Details {
  constructor(pane) {
    this.pane = pane;
    this.app = pane.app;
    this.body = element('div', {class: 'details-body'});
    this.root = element('section', {class: 'chart details'}, this.body);
    this.state = '';
  }

  close() {
    this.root.remove();
  }

  // Facts of a block for a table or a tip: [name, value].
  static facts(pane, block) {
    const {trace} = pane;
    const facts = [['size', exactBytesText(trace.bytes[block])]];
    if (trace.roundedBytes(block) !== trace.bytes[block]) facts.push(['allocated', exactBytesText(trace.roundedBytes(block))]);
    const site = trace.sites[trace.site[block]];
    if (site) facts.push(['call site', site]);
    if (trace.hasAddresses) facts.push(['address', trace.addressText(trace.offset[block])]);
    const window = pane.windows.ofBlock(block);
    if (window) {
      const {pieces, bytes} = window;
      const shown = pieces.slice(0, 4).map((piece) => `${bytesText(piece.bytes)} at ${trace.addressText(piece.offset)}`);
      facts.push(['in a window of', `${bytesText(bytes)} over ${countText(pieces.length)} piece${pieces.length === 1 ? '' : 's'} of the home: ` +
        `${shown.join(', ')}${pieces.length > 4 ? ', …' : ''}`]);
    }
    const initial = trace.allocAt[block] < trace.initial;
    const freed = trace.freedAt[block] < trace.count;
    const at = (moment) => pane.momentText(moment);
    facts.push(['allocated at', initial ? 'before the recording' : at(trace.allocAt[block])]);
    facts.push(['freed at', freed ? at(trace.freedAt[block]) : 'not in the recording']);
    if (!initial && freed) facts.push(['lived for', pane.spanText(trace.allocAt[block], trace.freedAt[block])]);
    if (trace.isLive(block, pane.shown) && !initial) facts.push(['age', pane.spanText(trace.allocAt[block], pane.shown)]);
    facts.push(['stream', trace.about.streams[trace.stream[block]]]);
    facts.push(['pool', trace.about.pools[trace.pool[block]]]);
    return facts;
  }

  static table(facts) {
    return element('table', {}, ...facts.map(([name, value]) =>
      element('tr', {}, element('th', {text: name}), element('td', {text: value}))));
  }

  update() {
    const {picked, shown} = this.pane;
    const state = `${picked} ${shown} ${this.app.axis} ${this.app.filterText}`;
    if (state === this.state || this.root.hidden) return;
    this.state = state;
    this.body.replaceChildren(...(picked === null ? this.momentParts() : this.blockParts(picked)));
  }

  blockParts(block) {
    const {trace} = this.pane;
    const frames = trace.framesOf(trace.site[block]);
    const parts = [
      element('h3', {}, `Block ${countText(block)}`,
        element('button', {text: 'close', title: 'Esc', onclick: () => this.app.selectBlock(this.pane, NOTHING)}),
        element('button', {text: 'go to its allocation', onclick: () => this.app.selectMoment(this.pane, Math.max(trace.allocAt[block], trace.first))})),
      Details.table(Details.facts(this.pane, block)),
      element('h3', {text: 'Stack, the innermost first'})];
    if (frames.length === 0) {
      parts.push(element('p', {class: 'quiet', text: 'No stack was recorded for it. torch.cuda.memory._record_memory_history(stacks="all") records them.'}));
    } else {
      parts.push(this.stackList(frames));
    }
    return parts;
  }

  // All frames; what is neither Python's nor the program's is folded until somebody opens it.
  stackList(frames) {
    const item = ({text, kind}) => element('li', {class: ['own', 'library', 'native', 'machinery'][kind], text});
    const list = element('ol', {class: 'stack'});
    for (let i = 0; i < frames.length;) {
      let end = i;
      while (end < frames.length && frames[end].kind >= 2) ++end;
      if (end - i < 3 || end - i === frames.length) {
        list.append(item(frames[i++]));
        continue;
      }
      const folded = frames.slice(i, end);
      const fold = element('li', {class: 'fold', value: String(i + 1)}, element('button', {
        text: `${countText(folded.length)} frames of C++ and the interpreter`,
        onclick: () => fold.replaceWith(...folded.map(item))}));
      list.append(fold);
      i = end;
      if (i < frames.length) {
        const next = item(frames[i++]);
        next.value = i;
        list.append(next);
      }
    }
    return list;
  }

  momentParts() {
    const {trace, shown} = this.pane;
    const kind = trace.kinds[shown];
    const facts = [['event', this.pane.momentText(shown)], ['what', this.eventText(shown, kind)]];
    if (trace.times) facts.push(['time', new Date(trace.times[shown] / 1000).toISOString().replace('T', ' ').replace('Z', ' UTC')]);
    const live = [];
    trace.forEachLive(shown, (block) => {
      if (!this.pane.filter || this.pane.filter[block]) live.push(block);
    });
    live.sort((a, b) => trace.bytes[b] - trace.bytes[a] || a - b);
    const rows = live.slice(0, 12).map((block) => {
      const site = trace.sites[trace.site[block]];
      const row = element('tr', {class: 'choice', tabindex: '0', onclick: () => this.app.selectBlock(this.pane, block),
        onkeydown: (event) => { if (event.key === 'Enter') this.app.selectBlock(this.pane, block); }},
      element('td', {class: 'number', text: bytesText(trace.bytes[block])}),
      element('td', {class: 'number', text: trace.allocAt[block] < trace.initial ? 'from before' : this.pane.spanText(trace.allocAt[block], shown)}),
      element('td', {title: site, text: shortSite(site) || (trace.hasAddresses ? trace.addressText(trace.offset[block]) : `block ${countText(block)}`)}));
      return row;
    });
    return [element('h3', {text: 'This moment'}), Details.table(facts),
      element('h3', {text: `The largest of ${countText(live.length)} live block${live.length === 1 ? '' : 's'}`}),
      element('table', {class: 'blocks-table'},
        element('tr', {}, element('th', {class: 'number', text: 'size'}), element('th', {class: 'number', text: 'age'}),
          element('th', {text: trace.hasSites ? 'call site' : 'address'})), ...rows)];
  }

  eventText(moment, kind) {
    const {trace} = this.pane;
    if (moment < trace.initial) return 'what was live before the recording';
    const index = trace.blockOf[moment];
    if (kind <= FREE) {
      const site = trace.sites[trace.site[index]];
      return `${KIND_NAMES[kind]} of ${exactBytesText(trace.bytes[index])}${site ? ` at ${site}` : ''}`;
    }
    if (kind <= SEGMENT_UNMAP) return `${KIND_NAMES[kind]} of ${exactBytesText(trace.operations[index].bytes)}`;
    if (kind === OOM) {
      const {bytes, free, site} = trace.ooms[index];
      return `out of memory: ${exactBytesText(bytes)} asked, ${bytesText(free)} free on the device` +
        (trace.sites[site] ? `, at ${trace.sites[site]}` : '');
    }
    return KIND_NAMES[kind];
  }
}
