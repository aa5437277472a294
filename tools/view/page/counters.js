// Pyramid: the least and the greatest of any stretch of a counter, whatever its length.
//
//   values   3 5 4 9 | 2 2 8 1 | ...
//   level 1  3..9    | 1..8    | ...       16 values each (4 here)
//   level 2  1..9              | ...       16 of those

const FAN = 16;

class Pyramid {
  constructor(values) {
    this.values = values;
    this.least = [values];
    this.most = [values];
    while (this.most.at(-1).length > FAN) {
      const least = this.least.at(-1);
      const most = this.most.at(-1);
      const length = Math.ceil(most.length / FAN);
      const lower = new Float64Array(length);
      const upper = new Float64Array(length);
      for (let i = 0, at = 0; i < length; ++i) {
        const end = Math.min(at + FAN, most.length);
        let low = least[at], high = most[at];
        for (++at; at < end; ++at) {
          if (least[at] < low) low = least[at];
          if (most[at] > high) high = most[at];
        }
        lower[i] = low;
        upper[i] = high;
      }
      this.least.push(lower);
      this.most.push(upper);
    }
    this.low = 0;
    this.high = 0;
  }

  // Sets `low` and `high` to those of [from, until), which is not empty.
  range(from, until) {
    let low = Infinity, high = -Infinity;
    for (let level = 0; from < until; ++level) {
      const least = this.least[level];
      const most = this.most[level];
      if (level === this.most.length - 1) {
        for (; from < until; ++from) {
          if (least[from] < low) low = least[from];
          if (most[from] > high) high = most[from];
        }
        break;
      }
      for (; from < until && from % FAN !== 0; ++from) {
        if (least[from] < low) low = least[from];
        if (most[from] > high) high = most[from];
      }
      for (; from < until && until % FAN !== 0;) {
        --until;
        if (least[until] < low) low = least[until];
        if (most[until] > high) high = most[until];
      }
      from /= FAN;
      until /= FAN;
    }
    this.low = low;
    this.high = high;
  }

  // The first place of the greatest value in [from, until), which is not empty.
  peakOf(from, until) {
    this.range(from, until);
    const high = this.high;
    // Over whole nodes that do not hold it, as large as they come, then down in the one that does.
    let at = from;
    let level = 0;
    for (;;) {
      while (level + 1 < this.most.length && at % FAN ** (level + 1) === 0 && at + FAN ** (level + 1) <= until) ++level;
      while (level > 0 && at + FAN ** level > until) --level;
      if (this.most[level][at / FAN ** level] >= high) break;
      at += FAN ** level;
    }
    while (level > 0) {
      --level;
      while (this.most[level][at / FAN ** level] < high) at += FAN ** level;
    }
    return at;
  }
}
