// What is reserved at a moment, and the axis on which addresses are drawn.
//
//   addresses   0x7f00 ####      0x9a00 ##########        gaps of terabytes between
//   axis        0      ####|##########                    without them

class AddressAxis {
  constructor(ranges) {
    this.starts = Float64Array.from(ranges, ([offset]) => offset);
    this.bytes = Float64Array.from(ranges, ([, bytes]) => bytes);
    this.places = new Float64Array(ranges.length);
    this.total = 0;
    for (let i = 0; i < ranges.length; ++i) {
      this.places[i] = this.total;
      this.total += this.bytes[i];
    }
    this.last = 0;
  }

  rangeOf(values, value) {
    if (values[this.last] <= value && !(values[this.last + 1] <= value)) return this.last;
    let least = 0;
    let most = values.length;
    while (least + 1 < most) {
      const middle = (least + most) >> 1;
      if (values[middle] <= value) least = middle;
      else most = middle;
    }
    this.last = least;
    return least;
  }

  // The place of an address; -1 where it lies in no range.
  placeOf(offset) {
    if (this.starts.length === 0) return -1;
    const range = this.rangeOf(this.starts, offset);
    const inside = offset - this.starts[range];
    return inside >= 0 && inside < this.bytes[range] ? this.places[range] + inside : -1;
  }

  offsetOf(place) {
    if (this.starts.length === 0) return 0;
    const range = this.rangeOf(this.places, place);
    return this.starts[range] + place - this.places[range];
  }
}

// The reserved ranges at any moment: kept for one, and moved from there event by event.
class SegmentHistory {
  constructor(trace) {
    this.operations = trace.operations;
    this.known = trace.about.segments_known;
    this.now = trace.about.segments.map(
      ([offset, bytes, stream, pool, expandable]) => ({from: offset, to: offset + bytes, stream, pool, mapped: expandable === 1}));
    this.applied = trace.about.segments_known_at_end ? this.operations.length : 0;  // else from none
  }

  at(moment) {
    const operations = this.operations;
    while (this.applied > 0 && operations[this.applied - 1].event > moment) this.apply(operations[--this.applied], -1);
    while (this.applied < operations.length && operations[this.applied].event <= moment) {
      this.apply(operations[this.applied++], 1);
    }
    return this.now;
  }

  // The first segment that ends beyond an address.
  firstBeyond(offset) {
    let least = 0;
    let most = this.now.length;
    while (least < most) {
      const middle = (least + most) >> 1;
      if (this.now[middle].to > offset) most = middle;
      else least = middle + 1;
    }
    return least;
  }

  apply({sign, offset, bytes, stream, mapped}, direction) {
    const to = offset + bytes;
    if (sign * direction > 0) this.add({from: offset, to, stream, pool: 0, mapped});
    else this.remove(offset, to);
  }

  add(segment) {
    const at = this.firstBeyond(segment.from);
    let before = at - 1;
    let after = at;
    if (segment.mapped) {  // pages of one range of addresses are one segment
      if (before >= 0 && this.now[before].mapped && this.now[before].to === segment.from) {
        segment.from = this.now[before--].from;
      }
      if (after < this.now.length && this.now[after].mapped && this.now[after].from === segment.to) {
        segment.to = this.now[after++].to;
      }
    }
    this.now.splice(before + 1, after - before - 1, segment);
  }

  remove(from, to) {
    const at = this.firstBeyond(from);
    let until = at;
    const left = [];
    for (; until < this.now.length && this.now[until].from < to; ++until) {
      const segment = this.now[until];
      if (segment.from < from) left.push({...segment, to: from});
      if (segment.to > to) left.push({...segment, from: to});
    }
    this.now.splice(at, until - at, ...left);
  }
}
