// Any bytes as a recording that is made a page and written in every format (write_everything.h).
// Most changes of a snapshot's bytes leave no snapshot, so here its values are changed where they
// stand:
//
//   K 12   M 512   J 1048576   X "alloc"   h 7        one byte and more of some of these
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/error.h"
#include "allocator/trace/load.h"
#include "allocator/trace/pickle.h"
#include "tests/fuzz/mutator.h"
#include "tests/fuzz/write_everything.h"

namespace {

using namespace gapless;

// As gapless convert reads it: with devices that have segments but no events.
std::vector<Trace> recording_of(const std::string& file) {
  try {
    if (looks_like_pickle(file)) return snapshot_of(file, "fuzz.pickle", true).traces;
    return traces_of(file, "fuzz.csv");
  } catch (const InputError&) {
    return {};
  }
}

struct Value {
  std::size_t at = 0;
  std::size_t bytes = 0;
};

std::size_t little_endian(std::string_view bytes) {
  std::size_t value = 0;
  for (std::size_t i = bytes.size(); i > 0; --i) {
    value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
  }
  return value;
}

// The numbers, texts and references of a pickle up to the first opcode that is not known here.
std::vector<Value> values_of(std::string_view pickle) {
  std::vector<Value> values;
  for (std::size_t at = 0; at < pickle.size();) {
    const char opcode = pickle[at++];
    std::size_t skipped = 0;
    std::size_t length_bytes = 0;
    switch (opcode) {
      case 'K':
      case 'h':
        values.push_back({at, skipped = 1});
        break;
      case 'M':
        values.push_back({at, skipped = 2});
        break;
      case 'J':
      case 'j':
        values.push_back({at, skipped = 4});
        break;
      case 'G':
        values.push_back({at, skipped = 8});
        break;
      case 'q':
      case '\x80':
        skipped = 1;
        break;
      case 'r':
        skipped = 4;
        break;
      case '\x95':
        skipped = 8;
        break;
      case 'U':
      case 'C':
      case '\x8a':
      case '\x8c':
        length_bytes = 1;
        break;
      case 'X':
      case 'T':
      case 'B':
      case '\x8b':
        length_bytes = 4;
        break;
      case '.':
        return values;
      default:
        if (std::string_view("()Nl]}tasuebR012\x85\x86\x87\x88\x89\x93\x94").find(opcode) ==
            std::string_view::npos) {
          return values;
        }
    }
    if (length_bytes != 0) {
      const std::size_t length =
          little_endian(pickle.substr(std::min(at, pickle.size()), length_bytes));
      at += length_bytes;
      if (length != 0) values.push_back({at, length});
      skipped = length;
    }
    if (skipped > pickle.size() - std::min(at, pickle.size())) {
      if (!values.empty()) values.pop_back();
      return values;
    }
    at += skipped;
  }
  return values;
}

void change(std::string& file, const std::vector<Value>& values, std::minstd_rand& random) {
  const Value value = values[random() % values.size()];
  switch (random() % 4) {
    case 0:  // a byte
      file[value.at + random() % value.bytes] = static_cast<char>(random());
      break;
    case 1:  // all ones, or none
      std::fill_n(file.begin() + static_cast<std::ptrdiff_t>(value.at), value.bytes,
                  random() % 2 == 0 ? '\xff' : '\0');
      break;
    default: {  // another of the same length: an event's address becomes another one's
      for (int tries = 0; tries < 50; ++tries) {
        const Value other = values[random() % values.size()];
        if (other.bytes != value.bytes) continue;
        file.replace(value.at, value.bytes, std::string(file, other.at, other.bytes));
        return;
      }
    }
  }
}

// How many inputs were recordings still: one that only sees errors looks at no writer.
struct Tally {
  ~Tally() { std::printf("%zu were written in every format\n", written); }
  std::size_t written = 0;
} tally;

const bool told = (mutator() = &LLVMFuzzerCustomMutator) != nullptr;

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned int seed) {
  (void)most;
  std::string file(reinterpret_cast<const char*>(data), size);
  std::minstd_rand random(seed);
  const std::vector<Value> values = values_of(file);
  if (values.empty()) {
    if (size != 0) data[random() % size] = static_cast<std::uint8_t>(random());
    return size;
  }
  for (std::uint64_t changes = 1 + random() % 4; changes > 0; --changes)
    change(file, values, random);
  std::copy(file.begin(), file.end(), reinterpret_cast<char*>(data));
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<Trace> traces =
      recording_of(std::string(reinterpret_cast<const char*>(data), size));
  if (traces.empty()) return 0;
  testing::write_everything(traces, size);
  ++tally.written;
  return 0;
}
