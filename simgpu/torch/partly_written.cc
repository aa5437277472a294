#include "simgpu/torch/partly_written.h"

#include "simgpu/torch/device_tensor.h"

namespace gapless::simgpu {

int fill_unknown(const at::Tensor& twin, const at::Tensor& tensor, int number) {
  const KnownWhere known = known_where(tensor);
  twin.masked_fill_(known.flags.logical_not(), number);
  return known.least;
}

void write_part(const at::Tensor& tensor, const at::Tensor& with_zeros, const at::Tensor& with_ones,
                int knowledge) {
  write_values(tensor, with_zeros, knowledge);
  forget_where(tensor, with_zeros.ne(with_ones));
}

}  // namespace gapless::simgpu
