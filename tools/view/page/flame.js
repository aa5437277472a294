// Flame graph: who holds the memory, by call stack, the outermost frame at the top.
//
//   |            train.py:80 <module>              |     width: bytes x lifetime, or what is live
//   |  train.py:41 train_step    | train.py:60 save |     at the moment
//   | gelu        | linear       |
//
// Without stacks the call sites alone; without those, sizes.

class Flame extends Chart {
  constructor(pane) {
    super(pane, {title: 'Flame graph', name: 'flame', help: 'Memory by call stack. Click a frame to see it alone.'});
    this.margin = {left: 8, right: 8, top: 4, bottom: 4};
    this.weight = 'time';
    this.everyFrame = false;
    this.focus = 0;
    this.scrolled = 0;  // levels above the top
    const again = (change) => () => {
      change();
      this.focus = this.scrolled = 0;
      this.tree = null;
      this.app.redraw();
    };
    this.buttons = {
      time: element('button', {text: 'bytes × lifetime', onclick: again(() => { this.weight = 'time'; })}),
      live: element('button', {text: 'live now', title: 'At the moment under the pointer, or else the selected one', onclick: again(() => { this.weight = 'live'; })}),
    };
    this.frames = element('button', {text: 'all frames', title: 'Also those of the interpreter, of C++ and the allocator',
      onclick: again(() => { this.everyFrame = !this.everyFrame; })});
    this.frames.hidden = !pane.trace.hasStacks;
    this.note = element('span', {class: 'note'});
    this.tools.append(this.note, this.frames, element('span', {class: 'switch'}, this.buttons.time, this.buttons.live));
    this.over.addEventListener('pointermove', (event) => {
      const hit = this.nodeAt(...this.pointerAt(event));
      if (hit === null) this.app.hideTip();
      else this.app.showTip(this.linesOf(hit), event);
    });
    this.over.addEventListener('pointerleave', () => this.app.hideTip());
    this.over.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.scrolled = Math.max(0, Math.min(this.levels - 3, this.scrolled + (event.deltaY > 0 ? 2 : -2)));
      this.app.redraw();
    }, {passive: false});
    this.over.addEventListener('click', (event) => {
      const hit = this.nodeAt(...this.pointerAt(event));
      this.scrolled = 0;
      this.focus = hit === null || hit.rest || hit.node === this.focus ? 0 : hit.node;
      this.app.redraw();
    });
  }

  // The tree of names, and of each block's group the node it ends at.
  build() {
    const {trace} = this.pane;
    const tree = {parent: [-1], text: ['all'], kind: [3], depth: [0], nodeOf: null};
    const children = new Map();
    const child = (parent, text, kind) => {
      const key = `${parent}\n${text}`;
      let node = children.get(key);
      if (node === undefined) {
        node = tree.parent.length;
        children.set(key, node);
        tree.parent.push(parent);
        tree.text.push(text);
        tree.kind.push(kind);
        tree.depth.push(tree.depth[parent] + 1);
      }
      return node;
    };
    if (trace.hasSites || trace.hasStacks) {
      tree.nodeOf = trace.sites.map((site, index) => {
        let node = 0;
        const frames = trace.framesOf(index);
        let kept = this.everyFrame ? frames : frames.filter((frame) => frame.kind < 2);
        if (kept.length === 0 && frames.length !== 0) kept = [{text: site || frames[0].text, kind: 2}];
        if (kept.length === 0) kept = [{text: site || '(no call site recorded)', kind: site ? 0 : 3}];
        for (let i = kept.length; i-- > 0;) node = child(node, kept[i].text, kept[i].kind);
        return node;
      });
      this.groupOf = (block) => trace.site[block];
    } else {
      tree.nodeOf = [];
      for (let size = 0; size < 52; ++size) {
        const text = size === 0 ? 'below 1 KiB' : `${bytesText(2 ** (size + 9))} to ${bytesText(2 ** (size + 10))}`;
        tree.nodeOf.push(child(0, text, 1));
      }
      this.groupOf = (block) => Math.max(0, Math.floor(Math.log2(Math.max(1, trace.bytes[block]))) - 9);
    }
    tree.kids = tree.parent.map(() => []);
    for (let node = 1; node < tree.parent.length; ++node) tree.kids[tree.parent[node]].push(node);
    tree.self = new Float64Array(tree.parent.length);
    tree.total = new Float64Array(tree.parent.length);
    this.tree = tree;
    this.weighed = null;
  }

  weigh() {
    const {trace, shown, filter} = this.pane;
    const state = `${this.weight} ${this.weight === 'live' ? shown : ''} ${this.app.axis} ${this.app.filterText}`;
    if (state === this.weighed) return;
    this.weighed = state;
    const {self, total, nodeOf, parent} = this.tree;
    self.fill(0);
    const matches = filter ? (block) => filter[block] !== 0 : () => true;
    if (this.weight === 'live') {
      trace.forEachLive(shown, (block) => {
        if (matches(block)) self[nodeOf[this.groupOf(block)]] += trace.bytes[block];
      });
    } else {
      const end = this.pane.endValue;
      for (let b = 0; b < trace.blocks; ++b) {
        if (!matches(b) || trace.freedAt[b] <= trace.first) continue;
        const freed = trace.freedAt[b] >= trace.count ? end : this.pane.valueOf(trace.freedAt[b]);
        self[nodeOf[this.groupOf(b)]] += trace.bytes[b] * (freed - this.pane.valueOf(Math.max(trace.allocAt[b], trace.first)));
      }
    }
    total.set(self);
    for (let node = parent.length - 1; node > 0; --node) total[parent[node]] += total[node];
  }

  draw() {
    if (!this.tree) this.build();
    for (const [weight, button] of Object.entries(this.buttons)) {
      button.setAttribute('aria-pressed', String(weight === this.weight));
    }
    this.frames.setAttribute('aria-pressed', String(this.everyFrame));
    this.weigh();
    this.paint();
    const {trace} = this.pane;
    this.note.textContent = trace.hasStacks ? '' : trace.hasSites ? 'by call site' : 'by size';
  }

  paint() {
    const context = this.begin();
    const {tree} = this;
    this.boxes = [];
    // What leads to the focus stands above it, as wide as all.
    const path = [];
    for (let node = this.focus; node >= 0; node = tree.parent[node]) path.unshift(node);
    const rowHeight = 19;
    this.levels = 0;
    const place = (node, x, width, row) => {
      const y = this.margin.top + (row - this.scrolled) * rowHeight;
      this.levels = Math.max(this.levels, row + 1);
      this.boxes.push({node, x, width, y, height: rowHeight - 1});
      const kids = tree.kids[node].sort((a, b) => tree.total[b] - tree.total[a]);
      let at = x;
      let rest = 0;
      for (const child of kids) {
        if (tree.total[child] <= 0) break;
        const share = tree.total[child] / tree.total[node] * width;
        if (share < 1) {
          rest += share;
          continue;
        }
        place(child, at, share, row + 1);
        at += share;
      }
      if (rest >= 1) {
        this.boxes.push({node, rest: true, x: at, width: rest, y: y + rowHeight, height: rowHeight - 1});
      }
    };
    path.slice(0, -1).forEach((node, row) => {
      this.boxes.push({node, x: this.margin.left, width: this.plotWidth, y: this.margin.top + (row - this.scrolled) * rowHeight, height: rowHeight - 1,
        above: true});
    });
    if (tree.total[0] > 0) place(this.focus, this.margin.left, this.plotWidth, path.length - 1);
    this.showEmpty(tree.total[0] > 0 ? '' : 'Nothing is live at this moment.');
    const fills = ['own', 'library', 'native', 'machinery'].map((name) => themeColour(`frame-${name}`));
    const bottom = this.height - this.margin.bottom;
    const hidden = this.levels - this.scrolled - Math.floor((bottom - this.margin.top) / rowHeight);
    const until = hidden > 0 ? bottom - rowHeight : bottom;
    this.boxes = this.boxes.filter(({y, height}) => y >= 0 && y + height <= until);
    for (const box of this.boxes) {
      context.globalAlpha = box.above ? 0.55 : 1;
      context.fillStyle = box.rest ? themeColour('merged') : fills[tree.kind[box.node]];
      context.fillRect(box.x, box.y, Math.max(0.5, box.width - 1), box.height);
      context.globalAlpha = 1;
      if (box.width < 30) continue;
      const own = tree.kind[box.node] === 0;
      context.font = own ? `600 ${FONT}` : FONT;
      context.fillStyle = themeColour(own ? 'frame-ink-own' : 'frame-ink');
      context.textAlign = 'left';
      const share = percentText(tree.total[box.node], tree.total[0]);
      const text = box.rest ? 'smaller ones' : box.node === 0 ? this.wholeText() : `${shortSite(tree.text[box.node])}  ${share}`;
      context.fillText(fittingText(context, text, box.width - 10), box.x + 5, box.y + box.height / 2 + 0.5);
    }
    context.font = FONT;
    if (hidden > 0) {
      context.fillStyle = themeColour('quiet');
      context.textAlign = 'center';
      context.fillText(`▾ ${hidden + 1} more levels: turn the wheel, or click a frame`, this.width / 2, bottom - rowHeight / 2);
    }
    this.sayWhatIsMissing();
  }

  sayWhatIsMissing() {
    if (this.pane.trace.hasStacks || this.height < 110) return;
    const context = this.context;
    context.textAlign = 'center';
    context.fillStyle = themeColour('quiet');
    const lines = ['No call stacks are in this trace. To record them:', 'torch.cuda.memory._record_memory_history(stacks="all")'];
    lines.forEach((line, i) => context.fillText(fittingText(context, line, this.width - 20), this.width / 2, this.height / 2 + 20 + i * 18));
  }

  wholeText() {
    return `all: ${this.weightText(this.tree.total[0])}`;
  }

  weightText(weight) {
    if (this.weight === 'live') return `${bytesText(weight)} live`;
    if (this.app.axis === 'time') return `${bytesText(weight / 1e6)} · seconds`;
    return `${bytesText(weight / Math.max(1, this.pane.endValue - this.pane.valueOf(this.pane.trace.first)))} on average`;
  }

  linesOf({node, rest}) {
    const {tree} = this;
    if (rest) return [['smaller ones', tree.text[node]]];
    const kinds = ['your code', 'library', 'native', ''];
    return [['frame', tree.text[node]], ['holds', this.weightText(tree.total[node])],
      ['share', percentText(tree.total[node], tree.total[0])], ['itself', this.weightText(tree.self[node])],
      ['kind', kinds[tree.kind[node]]]].filter(([, value]) => value !== '');
  }

  nodeAt(x, y) {
    const box = (this.boxes ?? []).find((b) => x >= b.x && x < b.x + b.width && y >= b.y && y < b.y + b.height);
    return box ? {node: box.node, rest: box.rest === true} : null;
  }

  drawOver() {
    if (this.weight === 'live' && this.tree) {
      const before = this.weighed;
      this.weigh();
      if (before !== this.weighed) this.paint();
    }
  }
}
