// Numbers as PTX writes them: 12, -4, 0x1FU, 1.5, and floats by their bits: 0f3F800000,
// 0d3FF0000000000000.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "simgpu/ptx/type.h"

namespace gapless::simgpu::ptx {

std::optional<std::uint64_t> integer_of(std::string_view text);

/// The bits of a number where something of `type` is expected.
std::optional<std::uint64_t> number_bits(std::string_view text, bool negative, Type type);

}  // namespace gapless::simgpu::ptx
