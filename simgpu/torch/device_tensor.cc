#include "simgpu/torch/device_tensor.h"

#include <algorithm>
#include <vector>

#include <ATen/EmptyTensor.h>

#include "simgpu/process/values.h"

namespace gapless::simgpu {
namespace {

constexpr std::int64_t kMostIntegers = 1 << 20;
constexpr std::int64_t kMostFloats = 1 << 14;
constexpr std::uint64_t kMostBytes = 8 << 20;  // from the first number to the last

// Where the numbers lie, from the first to the last.
struct Extent {
  char* begin = nullptr;
  std::uint64_t bytes = 0;
};

std::uint64_t bytes_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  std::uint64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    last += static_cast<std::uint64_t>((tensor.size(d) - 1) * tensor.stride(d));
  }
  return (last + 1) * static_cast<std::uint64_t>(tensor.element_size());
}

Extent extent_of(const at::Tensor& tensor) {
  const std::uint64_t bytes = bytes_of(tensor);
  if (bytes == 0) return {};
  // Without a look at who shares the storage: numbers are not written through this pointer.
  auto* const base = static_cast<char*>(tensor.unsafeGetTensorImpl()
                                            ->unsafe_storage()
                                            .unsafeGetStorageImpl()
                                            ->_mutable_data_ptr_no_checks()
                                            .get());
  if (base == nullptr) return {};
  return {base + tensor.storage_offset() * tensor.element_size(), bytes};
}

bool is_dense(const at::Tensor& tensor, const Extent& extent) {
  return extent.bytes == static_cast<std::uint64_t>(tensor.numel() * tensor.element_size());
}

// Calls f(offset, bytes) for each stretch of numbers that lie side by side; false where f was.
template <class F>
bool for_each_run(const at::Tensor& tensor, F&& f) {
  struct Dimension {
    std::int64_t size, stride;
  };
  std::vector<Dimension> outer;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) != 1 && tensor.stride(d) != 0) {
      outer.push_back({tensor.size(d), tensor.stride(d)});
    }
  }
  std::sort(outer.begin(), outer.end(),
            [](const Dimension& a, const Dimension& b) { return a.stride > b.stride; });
  std::int64_t run = 1;
  while (!outer.empty() && outer.back().stride == run) {
    run *= outer.back().size;
    outer.pop_back();
  }
  const std::int64_t size = tensor.element_size();
  std::vector<std::int64_t> at(outer.size());
  for (std::int64_t offset = 0;;) {
    if (!f(static_cast<std::uint64_t>(offset * size), static_cast<std::uint64_t>(run * size))) {
      return false;
    }
    std::size_t d = outer.size();
    while (d > 0) {
      --d;
      offset += outer[d].stride;
      if (++at[d] < outer[d].size) break;
      offset -= outer[d].stride * outer[d].size;
      at[d] = 0;
      if (d == 0) return true;
    }
    if (outer.empty()) return true;
  }
}

// Numbers in the order of the tensor's memory.
at::Tensor as_it_lies(const at::Tensor& values, const at::Tensor& tensor) {
  if (values.strides() == tensor.strides() && values.is_conj() == tensor.is_conj() &&
      values.is_neg() == tensor.is_neg()) {
    return values;
  }
  at::Tensor twin = empty_twin_of(tensor);
  without_repeats(twin, tensor).copy_(without_repeats(values, tensor));
  return twin;
}

// Flags in the order of the tensor's memory.
at::Tensor in_its_order(const at::Tensor& flags, const at::Tensor& tensor) {
  if (flags.strides() == tensor.strides()) return flags;
  at::Tensor made(at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), at::kBool));
  without_repeats(made, tensor).copy_(without_repeats(flags, tensor));
  return made;
}

// Calls f(offset, bytes) for each stretch of numbers side by side whose flags are set.
template <class F>
void for_each_stretch(const at::Tensor& tensor, const at::Tensor& flags, F&& f) {
  const at::Tensor in_order = in_its_order(flags, tensor);
  const auto* const flag = static_cast<const bool*>(in_order.data_ptr());
  const auto size = static_cast<std::uint64_t>(tensor.element_size());
  for_each_run(tensor, [&](std::uint64_t offset, std::uint64_t bytes) {
    const bool* const end = flag + (offset + bytes) / size;
    for (const bool* at = std::find(flag + offset / size, end, true); at != end;) {
      const bool* const to = std::find(at, end, false);
      f(static_cast<std::uint64_t>(at - flag) * size, static_cast<std::uint64_t>(to - at) * size);
      at = std::find(to, end, true);
    }
    return true;
  });
}

char* values_of(const at::Tensor& twin) { return static_cast<char*>(twin.data_ptr()); }

}  // namespace

bool is_on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cuda() && tensor.layout() == at::kStrided &&
         tensor.has_storage() && !tensor._is_zerotensor() && !tensor.is_quantized();
}

bool is_integer(const at::Tensor& tensor) {
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

bool is_small(const at::Tensor& tensor) {
  return tensor.numel() <= (is_integer(tensor) ? kMostIntegers : kMostFloats) &&
         bytes_of(tensor) <= kMostBytes;
}

bool is_worth_knowing(const at::Tensor& tensor) {
  return is_small(tensor) || (is_integer(tensor) && simgpu_may_keep(bytes_of(tensor)));
}

int knowledge_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return kKnown;
  const Extent extent = extent_of(tensor);
  if (extent.begin == nullptr) return kNone;
  const int whole = simgpu_knowledge(extent.begin, extent.bytes);
  if (whole != kNone || is_dense(tensor, extent) || !is_small(tensor) ||
      !simgpu_knows_any(extent.begin, extent.bytes)) {
    return whole;
  }
  int least = kKnown;  // of the numbers, and not of what lies between
  for_each_run(tensor, [&](std::uint64_t offset, std::uint64_t bytes) {
    least = std::min(least, simgpu_knowledge(extent.begin + offset, bytes));
    return least != kNone;
  });
  return least;
}

bool knows_any(const at::Tensor& tensor) {
  const Extent extent = extent_of(tensor);
  return extent.begin != nullptr && simgpu_knows_any(extent.begin, extent.bytes);
}

at::Tensor empty_twin_of(const at::Tensor& tensor) {
  const at::Tensor twin(
      at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
  twin._set_conj(tensor.is_conj());
  twin._set_neg(tensor.is_neg());
  return twin;
}

at::Tensor twin_of(const at::Tensor& tensor) {
  const at::Tensor twin = empty_twin_of(tensor);
  const Extent extent = extent_of(tensor);
  if (extent.begin != nullptr) simgpu_read_values(values_of(twin), extent.begin, extent.bytes);
  return twin;
}

at::Tensor without_repeats(at::Tensor tensor, const at::Tensor& like) {
  for (std::int64_t d = 0; d < like.dim(); ++d) {
    if (like.stride(d) == 0 && like.size(d) > 1) tensor = tensor.narrow(d, 0, 1);
  }
  return tensor;
}

void write_values(const at::Tensor& tensor, const at::Tensor& values, int knowledge) {
  if (tensor.numel() == 0) return;
  const Extent extent = extent_of(tensor);
  if (extent.begin == nullptr) return;
  const at::Tensor twin = as_it_lies(values, tensor);
  for_each_run(tensor, [&](std::uint64_t offset, std::uint64_t bytes) {
    simgpu_write_values(extent.begin + offset, values_of(twin) + offset, bytes, knowledge);
    return true;
  });
}

void forget_values(const at::Tensor& tensor) {
  const Extent extent = extent_of(tensor);
  if (extent.begin == nullptr || !simgpu_knows_any(extent.begin, extent.bytes)) return;
  if (is_dense(tensor, extent) || !is_small(tensor)) {
    simgpu_forget_values(extent.begin, extent.bytes);
    return;
  }
  for_each_run(tensor, [&](std::uint64_t offset, std::uint64_t bytes) {
    simgpu_forget_values(extent.begin + offset, bytes);
    return true;
  });
}

void write_where(const at::Tensor& tensor, const at::Tensor& values, const at::Tensor& flags,
                 int knowledge) {
  const Extent extent = extent_of(tensor);
  if (extent.begin == nullptr) return;
  const at::Tensor twin = as_it_lies(values, tensor);
  for_each_stretch(tensor, flags, [&](std::uint64_t offset, std::uint64_t bytes) {
    simgpu_write_values(extent.begin + offset, values_of(twin) + offset, bytes, knowledge);
  });
}

void forget_where(const at::Tensor& tensor, const at::Tensor& flags) {
  const Extent extent = extent_of(tensor);
  if (extent.begin == nullptr) return;
  for_each_stretch(tensor, flags, [&](std::uint64_t offset, std::uint64_t bytes) {
    simgpu_forget_values(extent.begin + offset, bytes);
  });
}

KnownWhere known_where(const at::Tensor& tensor) {
  KnownWhere known{
      at::Tensor(at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), at::kBool))};
  const Extent extent = extent_of(tensor);
  if (extent.begin == nullptr) {
    known.flags.zero_();
    return known;
  }
  const auto size = static_cast<std::uint64_t>(tensor.element_size());
  auto* const flag = static_cast<unsigned char*>(known.flags.data_ptr());
  for_each_run(tensor, [&](std::uint64_t offset, std::uint64_t bytes) {
    known.least = std::min(known.least, simgpu_flag_known(extent.begin + offset, size, bytes / size,
                                                          flag + offset / size));
    return true;
  });
  return known;
}

void note_written_by(void* graph, const at::Tensor& tensor) {
  const Extent extent = extent_of(tensor);
  if (extent.begin != nullptr) simgpu_graph_writes(graph, extent.begin, extent.bytes);
}

}  // namespace gapless::simgpu
