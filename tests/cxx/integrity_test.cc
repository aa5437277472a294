// The kernels that fill memory with patterns and verify it, run as PTX on the simulated GPU,
// against the definition in their header: at each alignment, of ragged sizes, with changed bytes.
#include "kernels/integrity.h"

#include <cstring>
#include <set>

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/pattern.h"
#include "tests/cxx/on_device.h"

namespace {

using testing::HasSubstr;
using Bytes = std::vector<unsigned char>;

constexpr std::uint64_t kNone = UINT64_MAX;
constexpr std::size_t kGuard = 48;
constexpr std::size_t kTile = 16384;

constexpr gapless_memory_pattern kWord{GAPLESS_PATTERN_WORD, 0x12345678, 0};
constexpr gapless_memory_pattern kByAddress{GAPLESS_PATTERN_BY_ADDRESS, 0, 77};

// The definition, byte by byte.
unsigned char defined(const gapless_memory_pattern& pattern, std::uint64_t address) {
  const auto hash = [](std::uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352dU;
    x = (x ^ (x >> 15)) * 0x846ca68bU;
    return x ^ (x >> 16);
  };
  const std::uint32_t key = hash(pattern.seed ^ hash(static_cast<std::uint32_t>(address >> 34)));
  const std::uint32_t word = pattern.kind == GAPLESS_PATTERN_WORD
                                 ? pattern.word
                                 : hash(static_cast<std::uint32_t>(address >> 2) ^ key);
  return static_cast<unsigned char>(word >> (8 * (address & 3)));
}
Bytes defined(const gapless_memory_pattern& pattern, std::uint64_t address, std::size_t bytes) {
  Bytes made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = defined(pattern, address + i);
  return made;
}

struct Verdict : gapless_memory_verdict {
  bool operator==(const Verdict& other) const {
    return std::memcmp(this, &other, sizeof other) == 0;
  }
};
std::ostream& operator<<(std::ostream& out, const Verdict& of) {
  return out << of.checked << " checked, " << of.mismatches << " mismatches, first "
             << static_cast<std::int64_t>(of.first) << ", last "
             << static_cast<std::int64_t>(of.last);
}
Verdict all_well(std::uint64_t bytes) { return {{bytes, 0, kNone, kNone}}; }

Verdict compared(const Bytes& found, const Bytes& expected) {
  Verdict made = all_well(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;
    if (made.mismatches++ == 0) made.first = i;
    made.last = i;
  }
  return made;
}

void succeed(int error) { EXPECT_EQ(error, 0) << gapless_kernels_last_error(); }
std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

void to_device(void* memory, const Bytes& bytes) {
  check(cudaMemcpy(memory, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
}
Bytes from_device(const void* memory, std::size_t bytes) {
  Bytes found(bytes);
  check(cudaMemcpy(found.data(), memory, bytes, cudaMemcpyDeviceToHost));
  return found;
}

// Memory with other bytes around it, at a multiple of 16 KiB and some bytes before or behind.
class Guarded {
 public:
  Guarded(std::ptrdiff_t shift, std::size_t bytes)
      : bytes_(bytes), all_(2 * kTile + bytes + kGuard) {
    const std::uint64_t aligned = (address_of(all_.data()) + 2 * kTile - 1) / kTile * kTile;
    begin_ = all_.data() + (aligned - address_of(all_.data())) + shift;
    to_device(begin_ - kGuard, Bytes(kGuard, 0xee));
    to_device(begin_ + bytes, Bytes(kGuard, 0xee));
  }
  [[nodiscard]] unsigned char* data() const { return begin_; }
  [[nodiscard]] std::uint64_t address() const { return address_of(begin_); }
  [[nodiscard]] Bytes values() const { return from_device(begin_, bytes_); }
  void expect_guards() const {
    EXPECT_EQ(from_device(begin_ - kGuard, kGuard), Bytes(kGuard, 0xee));
    EXPECT_EQ(from_device(begin_ + bytes_, kGuard), Bytes(kGuard, 0xee));
  }

 private:
  std::size_t bytes_;
  OnDevice<unsigned char> all_;
  unsigned char* begin_;
};

// What the simulated GPU finds wrong with a kernel is told on standard error: here, nothing.
class Integrity : public testing::Test {
 protected:
  Integrity() { testing::internal::CaptureStderr(); }
  ~Integrity() override { EXPECT_EQ(testing::internal::GetCapturedStderr(), ""); }

  // The kernel's verdict, where something else was before.
  Verdict verify(const gapless_memory_pattern& pattern, const void* memory, std::size_t bytes,
                 cudaStream_t stream = nullptr) {
    const gapless_memory_verdict before{1, 2, 3, 4};
    check(cudaMemcpy(verdict_.data(), &before, sizeof before, cudaMemcpyHostToDevice));
    succeed(gapless_memory_verify(&pattern, memory, bytes, verdict_.data(), stream));
    check(cudaStreamSynchronize(stream));
    return {verdict_.values()[0]};
  }
  static Verdict verify_host(const gapless_memory_pattern& pattern, const Bytes& copy,
                             std::uint64_t address) {
    Verdict found{};
    succeed(gapless_memory_verify_host(&pattern, copy.data(), address, copy.size(), &found));
    return found;
  }
  void fill_and_verify(std::ptrdiff_t shift, std::size_t bytes) {
    for (const gapless_memory_pattern& pattern : {kWord, kByAddress}) {
      SCOPED_TRACE(testing::Message() << pattern.kind << ": " << bytes << " from " << shift);
      const Guarded memory(shift, bytes);
      succeed(gapless_memory_fill(&pattern, memory.data(), bytes, nullptr));
      const Bytes found = memory.values();
      EXPECT_EQ(found, defined(pattern, memory.address(), bytes));
      Bytes copy(bytes);
      succeed(gapless_memory_fill_host(&pattern, copy.data(), memory.address(), bytes));
      EXPECT_EQ(copy, found);
      EXPECT_EQ(verify(pattern, memory.data(), bytes), all_well(bytes));
      EXPECT_EQ(verify_host(pattern, copy, memory.address()), all_well(bytes));
      memory.expect_guards();
    }
  }

 private:
  OnDevice<gapless_memory_verdict> verdict_{1};
};

TEST(Pattern, IsThePublishedFunctionAndOneToOne) {
  using gapless::kernels::mixed;
  using gapless::kernels::RegionPattern;
  static_assert(mixed(1) == 0x688990c0 && mixed(2) == 0xd1132181);
  static_assert(mixed(0xffffffff) == 0x6768824a);
  constexpr std::uint64_t kAddress = 0x7f00'0000'0004;
  static_assert(RegionPattern({GAPLESS_PATTERN_BY_ADDRESS, 0, 0}, kAddress).word(1) == 0x908a32f1);
  static_assert(RegionPattern::number_of(kAddress + 3) == 1);
  static_assert(RegionPattern(kWord, kAddress).byte(kAddress + 3) == 0x12);
  std::set<std::uint32_t> words;
  const RegionPattern region(kByAddress, kAddress);
  for (std::uint32_t i = 0; i < 40'000; ++i) {
    words.insert(region.word(i));                  // neighbours
    words.insert(region.word(1024 * (i + 1000)));  // begins of pages
  }
  EXPECT_EQ(words.size(), 80'000);
  // One word under two seeds, and in two regions.
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    const RegionPattern one({GAPLESS_PATTERN_BY_ADDRESS, 0, seed}, kAddress);
    const RegionPattern other({GAPLESS_PATTERN_BY_ADDRESS, 0, seed + 1}, kAddress);
    const RegionPattern next({GAPLESS_PATTERN_BY_ADDRESS, 0, seed},
                             kAddress + RegionPattern::kRegionBytes);
    EXPECT_NE(one.word(1), other.word(1));
    EXPECT_NE(one.word(1), next.word(1));
  }
}

TEST(Pattern, IsThatOfTheHeadersPicture) {
  constexpr gapless_memory_pattern kPattern{GAPLESS_PATTERN_BY_ADDRESS, 0, 0};
  constexpr std::uint64_t kAddress = 0x7f00'0000'0006;
  Bytes copy(11);
  succeed(gapless_memory_fill_host(&kPattern, copy.data(), kAddress, 11));
  EXPECT_EQ(copy, (Bytes{0x8a, 0x90, 0xfe, 0x56, 0x6f, 0x92, 0x45, 0xff, 0x69, 0x7b, 0x53}));
  copy[4] = copy[5] = 0;
  Verdict found{};
  succeed(gapless_memory_verify_host(&kPattern, copy.data(), kAddress, 11, &found));
  EXPECT_EQ(found, (Verdict{{11, 2, 4, 5}}));
}

TEST(Pattern, OfTheHostGoesOnAcrossRegions) {
  for (const gapless_memory_pattern& pattern : {kWord, kByAddress}) {
    for (const std::size_t before : {0, 1, 3, 4, 5, 30}) {
      const std::uint64_t address = 0x7f04'0000'0000 - before;  // 16 GiB end there
      Bytes copy(61, 0xee);
      succeed(gapless_memory_fill_host(&pattern, copy.data() + 1, address, 59));
      EXPECT_EQ(copy.front(), 0xee);
      EXPECT_EQ(copy.back(), 0xee);
      EXPECT_EQ(Bytes(copy.begin() + 1, copy.end() - 1), defined(pattern, address, 59)) << before;
    }
  }
}

TEST_F(Integrity, AtEachAlignmentAndOfRaggedSizes) {
  for (std::ptrdiff_t shift = -16; shift <= 16; ++shift) {
    for (const std::size_t bytes : {0, 1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 47, 100}) {
      fill_and_verify(shift, bytes);
    }
  }
}

TEST_F(Integrity, OfManyTiles) {
  for (const std::ptrdiff_t shift : {-1, 0, 3, 16}) {
    for (const std::size_t bytes : {kTile - 1, kTile, kTile + 1, 3 * kTile, 5 * kTile + 4077}) {
      fill_and_verify(shift, bytes);
    }
  }
}

// Changes bytes of filled memory, and compares all verdicts with what was changed.
TEST_F(Integrity, FindsWhatWasChanged) {
  std::mt19937 random(3);
  const std::size_t bytes = kTile + 1234;
  for (const gapless_memory_pattern& pattern : {kWord, kByAddress}) {
    for (const std::ptrdiff_t shift : {-5, 0, 9}) {
      const Guarded memory(shift, bytes);
      const Bytes expected = defined(pattern, memory.address(), bytes);
      const auto compare = [&](const Bytes& found, const char* what) {
        SCOPED_TRACE(testing::Message() << pattern.kind << ": " << what << " from " << shift);
        to_device(memory.data(), found);
        const Verdict made = compared(found, expected);
        ASSERT_EQ(verify(pattern, memory.data(), bytes), made);
        ASSERT_EQ(verify_host(pattern, found, memory.address()), made);
      };
      const auto changed = [&](std::initializer_list<std::size_t> offsets) {
        Bytes made = expected;
        for (const std::size_t offset : offsets) made[offset] ^= 0x80;
        return made;
      };
      compare(changed({0}), "the first");
      compare(changed({bytes - 1}), "the last");
      compare(changed({0, bytes - 1}), "both ends");
      compare(Bytes(bytes, 0), "zeros everywhere");
      Bytes inverse = expected;
      for (unsigned char& byte : inverse) byte ^= 0xff;
      compare(inverse, "everywhere");
      for (const std::size_t near : {std::size_t{16}, kTile}) {
        for (std::size_t at = near - 8; at <= near + 8; at += 2) compare(changed({at}), "one byte");
      }
      for (int times = 0; times < 10; ++times) {
        Bytes made = expected;
        const unsigned count = 1 + random() % 9;
        for (unsigned i = 0; i < count; ++i) {
          made[random() % bytes] ^= static_cast<unsigned char>(1U << (random() % 8));
        }
        compare(made, "some");
        ASSERT_EQ(verify(pattern, memory.data(), bytes), verify(pattern, memory.data(), bytes));
      }
    }
  }
}

TEST_F(Integrity, OfAPartOfWhatWasFilled) {
  const Guarded memory(0, 4 * kTile);
  succeed(gapless_memory_fill(&kByAddress, memory.data(), 4 * kTile, nullptr));
  check(cudaMemset(memory.data() + 20'000, 0, 1));
  EXPECT_EQ(verify(kByAddress, memory.data() + 13, 19'987), all_well(19'987));
  EXPECT_EQ(verify(kByAddress, memory.data() + 20'001, 30'001), all_well(30'001));
  EXPECT_EQ(verify(kByAddress, memory.data() + 19'999, 40'000), (Verdict{{40'000, 1, 1, 1}}));
}

// What nobody wrote stops a kernel that reads it, on the simulated GPU.
TEST_F(Integrity, ReadsNothingElse) {
  for (const std::ptrdiff_t shift : {0, 1, 5, 15}) {
    const OnDevice<unsigned char> memory(3 * kTile);
    unsigned char* const begin = memory.data() + 64 + shift;
    succeed(gapless_memory_fill(&kByAddress, begin, 40'001, nullptr));
    EXPECT_EQ(verify(kByAddress, begin, 40'001), all_well(40'001));
    EXPECT_EQ(verify(kByAddress, begin, 40'002).checked, 0) << "the simulated GPU knows too much";
  }
}

TEST_F(Integrity, OfMemoryThatWasGivenToTwo) {
  const OnDevice<unsigned char> memory(10'000);
  gapless_memory_pattern owner = kByAddress;
  succeed(gapless_memory_fill(&owner, memory.data(), 10'000, nullptr));
  gapless_memory_pattern other = owner;
  ++other.seed;
  succeed(gapless_memory_fill(&other, memory.data() + 4000, 6000, nullptr));
  const Verdict found = verify(owner, memory.data(), 10'000);
  EXPECT_EQ(found.checked, 10'000);
  EXPECT_GT(found.mismatches, 5900);
  EXPECT_LT(found.first, 4004);
  EXPECT_GE(found.first, 4000);
  EXPECT_GT(found.last, 9995);
}

// Two addresses of one page.
class TwoViews {
 public:
  static constexpr std::size_t kBytes = std::size_t{2} << 20;

  TwoViews() {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    call(cuMemCreate(&page_, kBytes, &properties, 0));
    call(cuMemAddressReserve(&address_, 2 * kBytes, 0, 0, 0));
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (const std::size_t offset : {std::size_t{0}, kBytes}) {
      call(cuMemMap(address_ + offset, kBytes, 0, page_, 0));
      call(cuMemSetAccess(address_ + offset, kBytes, &access, 1));
    }
  }
  TwoViews(const TwoViews&) = delete;
  TwoViews& operator=(const TwoViews&) = delete;
  ~TwoViews() {
    call(cuMemUnmap(address_, 2 * kBytes));
    call(cuMemAddressFree(address_, 2 * kBytes));
    call(cuMemRelease(page_));
  }
  [[nodiscard]] unsigned char* one() const { return reinterpret_cast<unsigned char*>(address_); }
  [[nodiscard]] unsigned char* other() const { return one() + kBytes; }

 private:
  static void call(CUresult result) { EXPECT_EQ(result, CUDA_SUCCESS); }

  CUmemGenericAllocationHandle page_ = 0;
  CUdeviceptr address_ = 0;
};

TEST_F(Integrity, OfAPageAtTwoAddresses) {
  check(cudaFree(nullptr));  // a context
  const TwoViews views;
  constexpr std::size_t kBytes = 30'000;
  // Where two hold the same words nobody sees that they are one.
  for (unsigned char* const view : {views.one(), views.other()}) {
    succeed(gapless_memory_fill(&kWord, view, kBytes, nullptr));
  }
  EXPECT_EQ(verify(kWord, views.one(), kBytes), all_well(kBytes));

  for (unsigned char* const view : {views.one(), views.other()}) {
    succeed(gapless_memory_fill(&kByAddress, view, kBytes, nullptr));
  }
  EXPECT_EQ(verify(kByAddress, views.other(), kBytes), all_well(kBytes));
  const Bytes written = defined(kByAddress, address_of(views.other()), kBytes);
  const Verdict found = verify(kByAddress, views.one(), kBytes);
  EXPECT_EQ(found, compared(written, defined(kByAddress, address_of(views.one()), kBytes)));
  EXPECT_GT(found.mismatches, kBytes - kBytes / 128);
}

TEST_F(Integrity, InAStream) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const OnDevice<unsigned char> memory(5000);
  succeed(gapless_memory_fill(&kByAddress, memory.data(), 5000, stream));
  EXPECT_EQ(verify(kByAddress, memory.data(), 5000, stream), all_well(5000));
  check(cudaStreamDestroy(stream));
}

TEST_F(Integrity, OfNothing) {
  succeed(gapless_memory_fill(&kByAddress, nullptr, 0, nullptr));
  EXPECT_EQ(verify(kByAddress, nullptr, 0), all_well(0));
  EXPECT_EQ(verify_host(kWord, {}, 0), all_well(0));
}

TEST(IntegrityErrors, AreToldInWords) {
  const OnDevice<unsigned char> memory(100);
  const OnDevice<gapless_memory_verdict> verdict(1);
  unsigned char copy[8];
  gapless_memory_verdict found;
  const auto said = [](int error) {
    EXPECT_EQ(error, 1);
    return std::string(gapless_kernels_last_error());
  };
  constexpr gapless_memory_pattern kOther{2, 0, 0};
  EXPECT_EQ(said(gapless_memory_fill(nullptr, memory.data(), 9, nullptr)), "pattern: NULL");
  EXPECT_THAT(said(gapless_memory_fill(&kOther, memory.data(), 9, nullptr)), HasSubstr("kind: 2"));
  EXPECT_EQ(said(gapless_memory_fill(&kWord, nullptr, 9, nullptr)), "memory: NULL");
  EXPECT_THAT(said(gapless_memory_fill(&kWord, memory.data(), SIZE_MAX, nullptr)),
              HasSubstr("behind the last address"));
  EXPECT_EQ(said(gapless_memory_verify(&kWord, nullptr, 9, verdict.data(), nullptr)),
            "memory: NULL");
  EXPECT_EQ(said(gapless_memory_verify(&kWord, &copy, 9, nullptr, nullptr)), "verdict: NULL");
  // A place that is no multiple of 8, and one of which the first or the last byte is the range's.
  const std::uint64_t at = address_of(memory.data());
  EXPECT_THAT(
      said(gapless_memory_verify(&kWord, memory.data(), 0,
                                 reinterpret_cast<gapless_memory_verdict*>(at + 4), nullptr)),
      HasSubstr("verdict: not"));
  auto* const inside = reinterpret_cast<gapless_memory_verdict*>(memory.data());
  for (const std::ptrdiff_t begin : {0, 31}) {
    EXPECT_THAT(said(gapless_memory_verify(&kWord, memory.data() + begin, 1, inside, nullptr)),
                HasSubstr("verdict: lies in the memory"));
  }
  succeed(gapless_memory_fill(&kWord, memory.data(), 100, nullptr));
  succeed(gapless_memory_verify(&kWord, memory.data() + 32, 9, inside, nullptr));
  EXPECT_EQ(said(gapless_memory_fill_host(&kWord, nullptr, at, 9)), "memory: NULL");
  EXPECT_THAT(said(gapless_memory_fill_host(&kOther, copy, at, 8)), HasSubstr("kind: 2"));
  EXPECT_THAT(said(gapless_memory_verify_host(&kWord, copy, UINT64_MAX - 3, 8, &found)),
              HasSubstr("behind the last address"));
  EXPECT_EQ(said(gapless_memory_verify_host(&kWord, copy, at, 8, nullptr)), "verdict: NULL");
}

}  // namespace
