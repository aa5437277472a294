// How many bytes the kernels that fill and verify memory move, and where, as they run as PTX: one
// write or one read of the range and nothing else; and of ranges of many GiB, which are too long to
// run here, one block of the launch, with all that it looks at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/tiles.h"
#include "tests/support/ptx_machine.h"

namespace gapless::simgpu::ptx {
namespace {

using kernels::PatternedMemory;
using kernels::RegionPattern;
using kernels::Tiles;

constexpr gapless_memory_pattern kByAddress{GAPLESS_PATTERN_BY_ADDRESS, 0, 5};
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

const std::string& kernels_text() {
  static const std::string text = text_of_file(GAPLESS_KERNELS_PTX "/integrity.ptx");
  return text;
}

LaunchResult launched(const Module& module, const char* kernel, unsigned blocks,
                      const PatternedMemory& argument, GlobalMemory& memory) {
  std::vector<unsigned char> bytes(sizeof argument);
  std::memcpy(bytes.data(), &argument, sizeof argument);
  LaunchSettings settings;
  settings.grid = {blocks, 1, 1};
  settings.block = {Tiles::kThreads, 1, 1};
  const LaunchResult result = launch(module.kernels.at(kernel), settings, bytes, memory);
  EXPECT_TRUE(result.completed);
  for (const Finding& finding : result.findings) ADD_FAILURE() << text_of(finding);
  return result;
}

// Memory of many GiB: all of it is as the pattern has it, but for one byte. It notes how often each
// tile was looked at, in bytes. The verdict lies in memory of its own.
class Endless final : public GlobalMemory {
 public:
  Endless(std::uint64_t begin, std::uint64_t end, std::uint64_t other)
      : begin_(begin), end_(end), other_(other) {
    own_.write(verdict_, &kNothing, sizeof kNothing);
  }
  bool read(std::uint64_t address, void* target, std::uint64_t bytes) override {
    if (address < kBegin) return own_.read(address, target, bytes);
    if (address < begin_ || address + bytes > end_) return false;
    for (std::uint64_t i = 0; i < bytes; ++i) {
      const std::uint64_t at = address + i;
      const unsigned char byte = RegionPattern(kByAddress, at).byte(at);
      static_cast<unsigned char*>(target)[i] = at == other_ ? byte ^ 1 : byte;
    }
    read_[address / Tiles::kTileBytes] += bytes;
    return true;
  }
  bool write(std::uint64_t address, const void* source, std::uint64_t bytes) override {
    if (address < kBegin) return own_.write(address, source, bytes);
    if (address < begin_ || address + bytes > end_) return false;
    for (std::uint64_t i = 0; i < bytes; ++i) {
      const std::uint64_t at = address + i;
      if (static_cast<const unsigned char*>(source)[i] != RegionPattern(kByAddress, at).byte(at))
        return false;
    }
    written_[address / Tiles::kTileBytes] += bytes;
    return true;
  }
  [[nodiscard]] std::string describe(std::uint64_t) const override { return "outside, or wrong"; }

  static constexpr std::uint64_t kBegin = 0x7100'0000'0000;
  [[nodiscard]] HostedMemory& own() { return own_; }
  [[nodiscard]] gapless_memory_verdict* verdict() const {
    return reinterpret_cast<gapless_memory_verdict*>(verdict_);
  }
  [[nodiscard]] gapless_memory_verdict found() const {
    return own_.values<gapless_memory_verdict>(verdict_).at(0);
  }
  using Counts = std::map<std::uint64_t, std::uint64_t>;
  [[nodiscard]] const Counts& read() const { return read_; }
  [[nodiscard]] const Counts& written() const { return written_; }

 private:
  static constexpr gapless_memory_verdict kNothing = kernels::nothing_checked();

  HostedMemory own_;
  std::uint64_t begin_, end_, other_;
  std::uint64_t verdict_ = own_.alloc(sizeof(gapless_memory_verdict));
  Counts read_, written_;
};

std::string with(std::string text, const std::string& name, unsigned value) {
  std::size_t replaced = 0;
  for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos; ++replaced)
    text.replace(at, name.size(), std::to_string(value));
  EXPECT_NE(replaced, 0) << name;
  return text;
}

TEST(IntegrityTraffic, IsThatOfTheRange) {
  for (const std::uint64_t shift : {0, 1, 15, 16}) {
    for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{77}, Tiles::kTileBytes,
                                      3 * Tiles::kTileBytes, 5 * Tiles::kTileBytes + 1001}) {
      const std::uint64_t begin = Endless::kBegin + shift;
      Endless memory(begin, begin + bytes, 0);
      const Module module = parsed(kernels_text(), memory.own());
      const PatternedMemory argument{kByAddress, {begin, begin + bytes}, memory.verdict()};
      const LaunchResult filled = launched(module, "memory_fill", 2, argument, memory);
      EXPECT_EQ(filled.global_written_bytes, bytes);
      EXPECT_EQ(filled.global_read_bytes, 0);
      const LaunchResult verified = launched(module, "memory_verify", 2, argument, memory);
      std::uint64_t read = 0;
      for (const auto& [tile, count] : memory.read()) read += count;
      EXPECT_EQ(read, bytes);
      // Besides, an addition to what was checked for each block.
      EXPECT_EQ(verified.global_read_bytes, bytes + 2 * 8);
      EXPECT_EQ(verified.global_written_bytes, 2 * 8);
      EXPECT_EQ(memory.found().checked, bytes);
      EXPECT_EQ(memory.found().mismatches, 0);
    }
  }
}

// A block of a launch over 9 GiB, of which the begin and the end are ragged: PTX that takes block
// and grid from here.
TEST(IntegrityTraffic, OfABlockOfManyGiB) {
  constexpr unsigned kBlocks = 16384;
  const std::uint64_t begin = Endless::kBegin + 5, end = begin + 9 * kGiB + 123;
  const Tiles tiles{begin, end};
  for (const unsigned block : {0U, 1U, static_cast<unsigned>((tiles.count() - 1) % kBlocks)}) {
    Endless::Counts expected;
    std::uint64_t last = 0, all = 0;
    for (std::uint64_t tile = block; tile < tiles.count(); tile += kBlocks) {
      const std::uint64_t at = tiles.address(tile);
      last = std::min(at + Tiles::kTileBytes, end);
      all += expected[at / Tiles::kTileBytes] = last - std::max(at, begin);
    }
    Endless memory(begin, end, last - 1);
    const std::string text = with(with(kernels_text(), "%ctaid.x", block), "%nctaid.x", kBlocks);
    const Module module = parsed(text, memory.own());
    const PatternedMemory argument{kByAddress, tiles, memory.verdict()};
    launched(module, "memory_fill", 1, argument, memory);
    EXPECT_EQ(memory.written(), expected);
    launched(module, "memory_verify", 1, argument, memory);
    EXPECT_EQ(memory.read(), expected);
    const gapless_memory_verdict found = memory.found();
    EXPECT_EQ(found.checked, all);
    EXPECT_EQ(found.mismatches, 1);
    EXPECT_EQ(found.first, last - 1 - begin);
    EXPECT_EQ(found.last, last - 1 - begin);
    EXPECT_GT(found.first, 8 * kGiB);
  }
}

// Tiles cover a range once, wherever it lies and however long it is.
TEST(Tiles, CoverARange) {
  for (const std::uint64_t begin : {std::uint64_t{0}, std::uint64_t{1}, 3 * Tiles::kTileBytes,
                                    4 * kGiB - 3, std::uint64_t{0x7fff'ffff'fff1}}) {
    for (const std::uint64_t bytes :
         {std::uint64_t{0}, std::uint64_t{1}, Tiles::kTileBytes - 1, Tiles::kTileBytes,
          Tiles::kTileBytes + 1, 2 * kGiB - 1, 2 * kGiB, 4 * kGiB + 1, 192 * kGiB + 7,
          std::uint64_t{1} << 56}) {
      const Tiles tiles{begin, begin + bytes};
      if (bytes == 0) {
        EXPECT_EQ(tiles.count(), 0);
        continue;
      }
      EXPECT_LE(tiles.address(0), begin);
      EXPECT_GT(tiles.address(1), begin);
      EXPECT_LT(tiles.address(tiles.count() - 1), begin + bytes);
      EXPECT_GE(tiles.address(tiles.count()), begin + bytes);
      EXPECT_TRUE(tiles.holds(begin, bytes));
      EXPECT_FALSE(tiles.holds(begin, bytes + 1));
      EXPECT_FALSE(tiles.holds(begin + bytes, 1));
      EXPECT_EQ(tiles.holds(tiles.address(0), Tiles::kTileBytes),
                begin % Tiles::kTileBytes == 0 && bytes >= Tiles::kTileBytes);
    }
  }
  EXPECT_EQ((Tiles{5, 9 * kGiB + 5}).count(), 9 * kGiB / Tiles::kTileBytes + 1);
}

}  // namespace
}  // namespace gapless::simgpu::ptx
