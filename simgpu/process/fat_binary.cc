#include "simgpu/process/fat_binary.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <zstd.h>

#include "simgpu/process/unaligned.h"

namespace gapless::simgpu {
namespace {

constexpr std::uint32_t kMagic = 0xBA55ED50;
constexpr std::uint64_t kZstd = 0x8000;
constexpr std::uint64_t kCompressed = 0x2000 | kZstd;  // the other is LZ4, until CUDA 12.7
constexpr std::uint64_t kMostBytes = 1ULL << 30;

struct Header {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t header_bytes;
  std::uint64_t bytes;
};

struct ImageHeader {
  std::uint16_t kind;  // 1 PTX, 2 machine code
  std::uint16_t version;
  std::uint32_t header_bytes;
  std::uint64_t payload_bytes;  // padded
  std::uint32_t compressed_bytes;
  std::uint32_t unknown[2];
  std::uint32_t architecture;
  std::uint64_t unknown_too;
  std::uint64_t flags;
  std::uint64_t zero;
  std::uint64_t decompressed_bytes;
};
static_assert(sizeof(ImageHeader) == 64);

// False where it cannot be had.
bool unpack(const ImageHeader& header, const char* payload, std::string& bytes) {
  if ((header.flags & kCompressed) == 0) {
    bytes.assign(payload, header.payload_bytes);
    return true;
  }
  if ((header.flags & kZstd) == 0 || header.decompressed_bytes > kMostBytes ||
      header.compressed_bytes > header.payload_bytes) {
    return false;
  }
  bytes.resize(header.decompressed_bytes);
  return ZSTD_decompress(bytes.data(), bytes.size(), payload, header.compressed_bytes) ==
         bytes.size();
}

// Calls f(header, payload) for each image.
template <class F>
void each_image(const void* fat_binary, F&& f) {
  if (fat_binary == nullptr) return;
  const auto* const base = static_cast<const char*>(fat_binary);
  const auto whole = at<Header>(base, 0);
  if (whole.magic != kMagic || whole.header_bytes < sizeof(Header)) return;
  const std::uint64_t end = whole.header_bytes + whole.bytes;
  for (std::uint64_t offset = whole.header_bytes; offset + sizeof(ImageHeader) <= end;) {
    const auto header = at<ImageHeader>(base, offset);
    if (header.header_bytes < sizeof(ImageHeader) || header.payload_bytes > end ||
        offset + header.header_bytes + header.payload_bytes > end) {
      return;
    }
    if (header.kind == 1 || header.kind == 2) f(header, base + offset + header.header_bytes);
    offset += header.header_bytes + header.payload_bytes;
  }
}

}  // namespace

int highest_architecture(const void* fat_binary, int most) {
  int highest = 0;
  each_image(fat_binary, [&](const ImageHeader& header, const char*) {
    const auto architecture = static_cast<int>(header.architecture);
    if (architecture <= most) highest = std::max(highest, architecture);
  });
  return highest;
}

std::vector<DeviceImage> device_images(const void* fat_binary, DeviceImage::Kind kind) {
  std::vector<DeviceImage> images;
  each_image(fat_binary, [&](const ImageHeader& header, const char* payload) {
    DeviceImage image;
    image.architecture = static_cast<int>(header.architecture);
    image.kind = header.kind == 1 ? DeviceImage::Kind::ptx : DeviceImage::Kind::machine_code;
    if (image.kind == kind && unpack(header, payload, image.bytes)) {
      images.push_back(std::move(image));
    }
  });
  return images;
}

}  // namespace gapless::simgpu
