// Windows of a recording of gapless: pages of its home that lie, a second time, at other addresses.
//
//   unmap 0x10 8   unmap 0x30 4   map 0x900 12   alloc 0x900 ...   as a recording has it
//
//   home     |##########////////####////##|    the pages that are lent, where they are
//   window   |////////////|                    the same in a row, under one block
//
// Of what a recording found when it began, only the window's addresses are known.

class WindowHistory {
  constructor(trace) {
    this.trace = trace;
    this.lent = [];  // {event, until, block, offset, bytes, pieces: [{offset, bytes}]}, in order
    if (!trace.about.source.startsWith('gapless')) return;  // others map and unmap for other reasons
    const open = new Map();
    trace.operations.forEach((operation, index) => {
      if (operation.sign > 0) {
        const window = this.windowAt(index);
        if (!window) return;
        this.lent.push(window);
        open.set(window.offset, window);
        return;
      }
      const window = open.get(operation.offset);
      if (!window || window.bytes !== operation.bytes) return;
      window.until = operation.event;
      open.delete(operation.offset);
    });
  }

  // What is mapped for a block right after as much was unmapped elsewhere, event upon event.
  windowAt(index) {
    const {trace} = this;
    const {event, offset, bytes} = trace.operations[index];
    const block = trace.kinds[event + 1] === ALLOC ? trace.blockOf[event + 1] : NOTHING;
    if (block === NOTHING || trace.offset[block] !== offset) return null;
    const pieces = [];
    let left = bytes;
    for (let i = index - 1; left > 0 && i >= 0; --i) {
      const piece = trace.operations[i];
      if (piece.sign > 0 || piece.event !== event - (index - i)) return null;
      pieces.unshift({offset: piece.offset, bytes: piece.bytes});
      left -= piece.bytes;
    }
    return left === 0 ? {event, until: trace.count, block, offset, bytes, pieces} : null;
  }

  // Those that are there at a moment.
  at(moment) {
    const found = [];
    for (const window of this.lent) {
      if (window.event > moment) break;
      if (moment < window.until) found.push(window);
    }
    return found;
  }

  // The one that a block lies in, at any time.
  ofBlock(block) {
    if (!this.byBlock) this.byBlock = new Map(this.lent.map((window) => [window.block, window]));
    return this.byBlock.get(block);
  }
}
