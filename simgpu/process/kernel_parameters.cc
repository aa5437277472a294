#include "simgpu/process/kernel_parameters.h"

#include <cstdint>
#include <cstring>
#include <string_view>

#include <elf.h>

#include "simgpu/process/unaligned.h"

namespace gapless::simgpu {
namespace {

constexpr std::string_view kInfo = ".nv.info.";
constexpr std::uint8_t kWithBytes = 4;  // the format of attributes that have a length
constexpr std::uint8_t kParameter = 0x17;
constexpr std::size_t kParameterBytes = 12;

std::vector<std::size_t> parameters_in(const char* info, std::size_t bytes) {
  std::vector<std::size_t> sizes;
  for (std::size_t offset = 0; offset + 4 <= bytes;) {
    const auto format = at<std::uint8_t>(info, offset);
    const auto attribute = at<std::uint8_t>(info, offset + 1);
    const std::size_t length = format == kWithBytes ? at<std::uint16_t>(info, offset + 2) : 0;
    offset += 4;
    if (offset + length > bytes) break;
    if (attribute == kParameter && length == kParameterBytes) {
      const std::size_t ordinal = at<std::uint16_t>(info, offset + 4);
      if (sizes.size() <= ordinal) sizes.resize(ordinal + 1);
      sizes[ordinal] = at<std::uint32_t>(info, offset + 8) >> 18;
    }
    offset += length;
  }
  return sizes;
}

}  // namespace

std::unordered_map<std::string, std::vector<std::size_t>> kernel_parameters(const void* module) {
  std::unordered_map<std::string, std::vector<std::size_t>> kernels;
  const auto* const file = static_cast<const char*>(module);
  if (file == nullptr || std::memcmp(file, ELFMAG, SELFMAG) != 0 || file[EI_CLASS] != ELFCLASS64) {
    return kernels;
  }
  const auto header = at<Elf64_Ehdr>(file, 0);
  const auto section = [&](std::size_t index) {
    return at<Elf64_Shdr>(file, header.e_shoff + index * header.e_shentsize);
  };
  if (header.e_shnum == 0 || header.e_shstrndx >= header.e_shnum) return kernels;
  const char* const names = file + section(header.e_shstrndx).sh_offset;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr found = section(i);
    const std::string_view name = names + found.sh_name;
    if (name.substr(0, kInfo.size()) != kInfo) continue;
    auto sizes = parameters_in(file + found.sh_offset, found.sh_size);
    if (!sizes.empty()) kernels[std::string(name.substr(kInfo.size()))] = std::move(sizes);
  }
  return kernels;
}

}  // namespace gapless::simgpu
