// What an operator writes to some places of a tensor is known, though nothing is of the others.
//
//   order = torch.empty(4)                        ? ? ? ?
//   order.scatter_(0, {2, 0}, {5, 6})             6 ? 5 ?
//   order[flags] = 7, flags {0, 1, 0, 1}          6 7 5 7, which the host may read
//
// Which places these are shows where the same operator is computed twice, with zeros for what
// nobody knows and with ones: there it gives the same numbers.
#pragma once

#include <ATen/core/Tensor.h>

namespace gapless::simgpu {

/// Makes that number of all those in the twin of a tensor of which nothing is known
/// (device_tensor.h). Returns the least that is known of the others.
int fill_unknown(const at::Tensor& twin, const at::Tensor& tensor, int number);

/// The tensor holds, with that knowledge, what an operator made the same with zeros and with ones.
void write_part(const at::Tensor& tensor, const at::Tensor& with_zeros, const at::Tensor& with_ones,
                int knowledge);

}  // namespace gapless::simgpu
