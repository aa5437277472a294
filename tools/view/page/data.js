// A trace as the command packed it (page_data.h), unpacked into columns: arrays of numbers, one
// place for each event or block.
//
//   moment e: what is true after event e, until event e + 1
//   block b:  live at the moments allocAt[b] <= e < freedAt[b]; freedAt is `count` where it stays

const ALLOC = 0, FREE_REQUESTED = 1, FREE = 2, SEGMENT_ALLOC = 3, SEGMENT_FREE = 4, SEGMENT_MAP = 5, SEGMENT_UNMAP = 6,
  OOM = 7, MARKER = 8;
const KIND_NAMES = ['alloc', 'free requested', 'free', 'segment alloc', 'segment free', 'segment map', 'segment unmap',
  'out of memory', 'marker'];
const GRAIN_BYTES = 512;

function bytesOfBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; ++i) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function unpackElement(id) {
  const holder = document.getElementById(id);
  const packed = bytesOfBase64(holder.textContent);
  holder.remove();
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

class VarintReader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }
  next() {
    const bytes = this.bytes;
    let value = bytes[this.at++];
    if (value < 128) return value;
    value &= 127;
    let weight = 128;
    let byte;
    do {
      byte = bytes[this.at++];
      value += (byte & 127) * weight;
      weight *= 128;
    } while (byte >= 128);
    return value;
  }
  signed() {
    const value = this.next();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }
  get empty() {
    return this.bytes.length === 0;
  }
}

class TraceData {
  constructor(table) {
    const view = new DataView(table.buffer, table.byteOffset);
    let at = 0;
    const part = () => {
      const bytes = view.getUint32(at, true);
      at += 4 + bytes;
      return table.subarray(at - bytes, at);
    };
    this.about = JSON.parse(new TextDecoder().decode(part()));
    const columns = [];
    at += 4;
    while (at < table.length) columns.push(part());
    this.name = this.about.name;
    this.sites = this.about.sites;
    this.initial = this.about.initial_events;
    this.readEvents(columns);
    this.readStacks(columns);
    this.first = Math.min(Math.max(this.initial - 1, 0), this.count - 1);
    this.hasSites = this.sites.some((site) => site !== '');
    this.hasAddresses = this.about.ranges.length !== 0;
    this.hasReserved = this.about.reserved_at_start !== null;
    this.findPeaks();
  }

  readEvents([kinds, timesColumn, sizes, addresses, sites, streams, pools, freed, rangeSizes, rangeAddresses, rangeStreams,
    oomColumn]) {
    const count = kinds.length;
    const blocks = this.about.blocks;
    const reader = (column) => new VarintReader(column);
    const size = reader(sizes), address = reader(addresses), site = reader(sites), stream = reader(streams),
      pool = reader(pools), back = reader(freed), rangeSize = reader(rangeSizes), rangeAddress = reader(rangeAddresses),
      rangeStream = reader(rangeStreams), oom = reader(oomColumn), time = reader(timesColumn);
    this.count = count;
    this.blocks = blocks;
    this.kinds = kinds;
    this.times = time.empty ? null : new Float64Array(count);
    this.blockOf = new Int32Array(count).fill(-1);
    this.allocAt = new Uint32Array(blocks);
    this.freedAt = new Uint32Array(blocks).fill(count);
    this.bytes = new Float64Array(blocks);
    this.offset = new Float64Array(blocks);
    this.site = new Uint32Array(blocks);
    this.stream = new Uint16Array(blocks);
    this.pool = new Uint8Array(blocks);
    this.requested = new Float64Array(count);
    this.allocated = new Float64Array(count);
    this.reserved = new Float64Array(count);
    this.operations = [];  // on segments: {event, sign, offset, bytes, stream, mapped}
    this.ooms = [];        // {event, bytes, free, site}
    const unit = this.about.address_unit;
    let requested = 0, allocated = 0, reserved = this.about.reserved_at_start ?? 0;
    let block = 0, lastAddress = 0, lastRange = 0, lastTime = 0, latest = 0;
    for (let e = 0; e < count; ++e) {
      const kind = kinds[e];
      if (this.times) {
        lastTime += time.signed();
        latest = Math.max(latest, lastTime);  // clocks that go back would tangle the axis
        this.times[e] = latest;
      }
      if (kind === ALLOC) {
        const bytes = size.next();
        lastAddress += address.signed();
        this.blockOf[e] = block;
        this.allocAt[block] = e;
        this.bytes[block] = bytes;
        this.offset[block] = lastAddress * unit;
        if (!site.empty) this.site[block] = site.next();
        if (!stream.empty) this.stream[block] = stream.next();
        if (!pool.empty) this.pool[block] = pool.next();
        requested += bytes;
        allocated += Math.ceil(bytes / GRAIN_BYTES) * GRAIN_BYTES;
        ++block;
      } else if (kind === FREE) {
        const gone = block - 1 - back.next();
        this.blockOf[e] = gone;
        this.freedAt[gone] = e;
        requested -= this.bytes[gone];
        allocated -= Math.ceil(this.bytes[gone] / GRAIN_BYTES) * GRAIN_BYTES;
      } else if (kind === FREE_REQUESTED) {
        this.blockOf[e] = block - 1 - back.next();
      } else if (kind <= SEGMENT_UNMAP) {
        const bytes = rangeSize.next();
        lastRange += rangeAddress.signed();
        const sign = kind === SEGMENT_ALLOC || kind === SEGMENT_MAP ? 1 : -1;
        this.blockOf[e] = this.operations.length;
        this.operations.push(
          {event: e, sign, offset: lastRange, bytes, stream: rangeStream.next(), mapped: kind >= SEGMENT_MAP});
        reserved += sign * bytes;
      } else if (kind === OOM) {
        this.blockOf[e] = this.ooms.length;
        this.ooms.push({event: e, bytes: oom.next(), free: oom.next(), site: oom.next()});
      }
      this.requested[e] = requested;
      this.allocated[e] = allocated;
      this.reserved[e] = reserved;
    }
    // What was live before has no time of its own; it came with the first event.
    if (this.times) this.times.fill(this.times[Math.min(this.initial, count - 1)], 0, this.initial);
  }

  readStacks(columns) {
    const [parents, frames, siteNodes] = columns.slice(12).map((column) => new VarintReader(column));
    this.nodeParent = [0];
    this.nodeFrame = [-1];
    while (parents.at < parents.bytes.length) {
      this.nodeParent.push(this.nodeParent.length - parents.next());
      this.nodeFrame.push(frames.next());
    }
    this.siteNode = [];
    while (siteNodes.at < siteNodes.bytes.length) this.siteNode.push(siteNodes.next());
    this.hasStacks = this.nodeParent.length > 1;
  }

  findPeaks() {
    const peak = (values) => {
      let at = this.first;
      for (let e = this.first; e < this.count; ++e) if (values[e] > values[at]) at = e;
      return {event: at, bytes: values[at]};
    };
    this.peak = {requested: peak(this.requested), allocated: peak(this.allocated), reserved: peak(this.reserved)};
    if (this.hasReserved) this.peak.reserved.bytes = Math.max(this.peak.reserved.bytes, this.about.reserved_at_start);
  }

  // The frames of a site, the innermost first: {text, kind} with kind 0 own, 1 library, 2 native, 3 machinery.
  framesOf(site) {
    const found = [];
    for (let node = this.siteNode[site] ?? 0; node !== 0; node = this.nodeParent[node]) {
      const frame = this.nodeFrame[node];
      found.push({text: this.about.frames[frame], kind: Number(this.about.frame_kinds[frame])});
    }
    return found;
  }

  addressText(offset) {
    return '0x' + (BigInt(this.about.base_address) + BigInt(Math.round(offset))).toString(16);
  }

  roundedBytes(block) {
    return Math.ceil(this.bytes[block] / GRAIN_BYTES) * GRAIN_BYTES;
  }

  isLive(block, moment) {
    return this.allocAt[block] <= moment && moment < this.freedAt[block];
  }

  get lifetimes() {
    if (!this.allLifetimes) this.allLifetimes = new Lifetimes(this);
    return this.allLifetimes;
  }

  // In no order.
  forEachLive(moment, visit) {
    this.lifetimes.forEachLive(moment, visit);
  }

  // The number people see: 1 is the first recorded event, 0 what was there before.
  eventNumber(moment) {
    return moment - this.initial + 1;
  }
  get recorded() {
    return this.count - this.initial;
  }
}
