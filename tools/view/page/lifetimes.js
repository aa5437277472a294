// Lifetimes: blocks in classes of how long they live, so that those of a moment are found without a
// look at all of them.
//
//   class 0   |=========================|          lives of up to the whole trace
//   class 1     |=====|   |====|      |===|        a quarter of that
//   class 2   |=| |=||=|    |=|  |=|  |=| |=|      a sixteenth, and so on
//                         ^ a moment: of each class only what began within its longest life before
//
// Within a class blocks stand in the order of their allocation. Read one after the other in every
// frame, where jumps in memory would take most of the time.

class Lifetimes {
  constructor(trace) {
    const {blocks, allocAt, freedAt, bytes, first, count} = trace;
    const classOf = new Uint8Array(blocks);
    const span = Math.max(1, count - first);
    const sizes = new Uint32Array(16);
    const bounds = Array.from({length: 15}, (_, i) => span / 4 ** (i + 1) * 3);
    for (let b = 0; b < blocks; ++b) {
      const life = freedAt[b] - Math.max(allocAt[b], first);
      let order = 0;
      while (order < 15 && life < bounds[order]) ++order;
      classOf[b] = order;
      ++sizes[order];
    }
    this.starts = new Uint32Array(17);
    for (let i = 0; i < 16; ++i) this.starts[i + 1] = this.starts[i] + sizes[i];
    const next = this.starts.slice();
    this.block = new Uint32Array(blocks);
    this.begins = new Uint32Array(blocks);  // what was there before begins with the recording
    this.ends = new Uint32Array(blocks);
    this.sizes = new Float64Array(blocks);  // rounded up
    for (let b = 0; b < blocks; ++b) {
      const at = next[classOf[b]]++;
      this.block[at] = b;
      this.begins[at] = Math.max(allocAt[b], first);
      this.ends[at] = freedAt[b];
      this.sizes[at] = Math.ceil(bytes[b] / GRAIN_BYTES) * GRAIN_BYTES;
    }
    this.longest = [Infinity, ...bounds];
  }

  // Of a class, the place of the first block that was allocated at a moment or later.
  firstFrom(order, moment) {
    let least = this.starts[order];
    let most = this.starts[order + 1];
    while (least < most) {
      const middle = (least + most) >> 1;
      if (this.begins[middle] < moment) least = middle + 1;
      else most = middle;
    }
    return least;
  }

  forEachLive(moment, visit) {
    const {begins, ends} = this;
    for (let order = 0; order < 16; ++order) {
      const stop = this.starts[order + 1];
      for (let i = this.firstFrom(order, moment - this.longest[order]); i < stop && begins[i] <= moment; ++i) {
        if (ends[i] > moment) visit(this.block[i]);
      }
    }
  }
}
