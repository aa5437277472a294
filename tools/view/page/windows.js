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
    const windows = this.withoutHome(trace.operations.map((operation, index) => operation.sign > 0 ? this.windowAt(index) : null));
    const open = new Map();
    trace.operations.forEach((operation, index) => {
      if (windows[index]) {
        this.lent.push(windows[index]);
        open.set(operation.offset, windows[index]);
        return;
      }
      const window = open.get(operation.offset);
      if (!window || operation.sign > 0 || window.bytes !== operation.bytes) return;
      window.until = operation.event;
      open.delete(operation.offset);
    });
  }

  // Memory that was given back just before the home grew by as much looks the same. But it came to the
  // home, which has one range of addresses: where pieces are, and what else was mapped.
  withoutHome(found) {
    const {operations, kinds} = this.trace;
    let [low, high] = [Infinity, -Infinity];
    const widen = ({offset, bytes}) => {
      low = Math.min(low, offset);
      high = Math.max(high, offset + bytes);
    };
    // What is there first may be windows that were made before.
    const started = kinds.findIndex((kind) => kind !== SEGMENT_MAP);
    operations.forEach((operation, index) => {
      if (found[index]) found[index].pieces.forEach(widen);
      else if (operation.sign > 0 && operation.event > started) widen(operation);
    });
    const windows = [...found];
    for (let changed = true; changed;) {
      changed = false;
      windows.forEach((window, index) => {
        if (!window || window.offset > high || window.offset + window.bytes < low) return;
        widen(window);
        windows[index] = null;
        changed = true;
      });
    }
    return windows;
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
