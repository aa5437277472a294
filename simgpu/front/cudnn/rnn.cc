// cuDNN's recurrent networks: where each matrix lies in the weights.
//
//   weights   layer 0 [ input: gates x hidden x in | recurrent: gates x hidden x out | projection ]
//             layer 1 [ ... ]  (each direction is a layer of its own here)
//   biases    layer 0 [ input: gates x hidden | recurrent: gates x hidden ]  layer 1 [ ... ]
//
// Matrices of one layer must lie side by side, for torch joins the gates' into one parameter. The
// order is ours; the sum of their sizes is what must be right. Temporary sizes are estimates: the
// gates, cell and output of every step are kept for training.
#include <cstddef>
#include <map>

#include "simgpu/front/cudnn/common.h"
#include "simgpu/process/library_handle.h"
#include "simgpu/process/process.h"

using namespace gapless::simgpu::cudnn;

namespace {

constexpr int kLstm = 2;
constexpr int kGru = 3;
// cudnnRNNBiasMode_t
constexpr int kNoBias = 0;
constexpr int kInputBias = 1;
constexpr int kDoubleBias = 2;
constexpr int kRecurrentBias = 3;
constexpr int kBidirectional = 1;

// cudnnDataType_t: float, double, half, ... bfloat16 is 9.
std::int64_t bytes_of_type(int data_type) {
  switch (data_type) {
    case 0:
      return 4;
    case 1:
      return 8;
    default:
      return 2;
  }
}

struct Rnn {
  int cell = 0;
  int bias = 0;
  int directions = 1;
  int data_type = 0;
  std::int64_t input = 0;
  std::int64_t hidden = 0;
  std::int64_t projected = 0;
  std::int64_t layers = 1;

  [[nodiscard]] std::int64_t gates() const { return cell == kLstm ? 4 : cell == kGru ? 3 : 1; }
  [[nodiscard]] bool projects() const { return projected != 0 && projected != hidden; }
  [[nodiscard]] std::int64_t output() const { return projects() ? projected : hidden; }
  [[nodiscard]] std::int64_t inputs_of(std::int64_t layer) const {
    return layer < directions ? input : directions * output();
  }
  /// Elements of the matrices of one layer (and direction).
  [[nodiscard]] std::int64_t matrices(std::int64_t layer) const {
    return gates() * hidden * (inputs_of(layer) + output()) + (projects() ? projected * hidden : 0);
  }
  [[nodiscard]] std::int64_t biases() const {
    return bias == kNoBias ? 0 : (bias == kDoubleBias ? 2 : 1) * gates() * hidden;
  }
  [[nodiscard]] std::int64_t elements() const {
    std::int64_t sum = 0;
    for (std::int64_t layer = 0; layer < layers * directions; ++layer) {
      sum += matrices(layer) + biases();
    }
    return sum;
  }
};

struct Tensor {
  int data_type = 0;
  std::int64_t dims[3] = {1, 1, 1};
};

struct Sequence {
  std::int64_t steps = 0;
  std::int64_t batch = 0;
};

// What was set, by descriptor; by the lock of the process.
std::map<const void*, Rnn>& rnns() {
  static auto& known = *new std::map<const void*, Rnn>;  // used until the very end of the process
  return known;
}
std::map<const void*, Tensor>& tensors() {
  static auto& known =
      *new std::map<const void*, Tensor>;  // used until the very end of the process
  return known;
}
std::map<const void*, Sequence>& sequences() {
  static auto& known =
      *new std::map<const void*, Sequence>;  // used until the very end of the process
  return known;
}

}  // namespace

CUDNN int cudnnSetRNNDescriptor_v8(void* descriptor, int, int cell, int bias, int direction, int,
                                   int data_type, int, int, std::int32_t input, std::int32_t hidden,
                                   std::int32_t projected, std::int32_t layers, void*,
                                   std::uint32_t) {
  const gapless::simgpu::Entry entry;
  rnns()[descriptor] = {
      cell, bias, direction == kBidirectional ? 2 : 1, data_type, input, hidden, projected, layers};
  return kSuccess;
}
CUDNN int cudnnDestroyRNNDescriptor(void* descriptor) {
  const gapless::simgpu::Entry entry;
  rnns().erase(descriptor);
  return simgpu_drop(descriptor);
}
CUDNN int cudnnGetRNNWeightSpaceSize(void*, void* descriptor, std::size_t* bytes) {
  const gapless::simgpu::Entry entry;
  const Rnn& rnn = rnns()[descriptor];
  *bytes = static_cast<std::size_t>(rnn.elements() * bytes_of_type(rnn.data_type));
  return kSuccess;
}

CUDNN int cudnnGetRNNWeightParams(void*, void* descriptor, std::int32_t layer, std::size_t,
                                  const void* weights, std::int32_t which, void* matrix,
                                  void** matrix_address, void* bias, void** bias_address) {
  const gapless::simgpu::Entry entry;
  const Rnn& rnn = rnns()[descriptor];
  const std::int64_t gates = rnn.gates();
  if (layer < 0 || layer >= rnn.layers * rnn.directions || which < 0 || which > 2 * gates) {
    return kBadParam;
  }
  const std::int64_t in = rnn.inputs_of(layer);
  std::int64_t at = 0;
  for (std::int64_t before = 0; before < layer; ++before) at += rnn.matrices(before);
  Tensor shape{rnn.data_type, {1, rnn.hidden, in}};
  bool there = true;
  if (which < gates) {
    at += which * rnn.hidden * in;
  } else if (which < 2 * gates) {
    at += gates * rnn.hidden * in + (which - gates) * rnn.hidden * rnn.output();
    shape.dims[2] = rnn.output();
  } else {
    at += gates * rnn.hidden * (in + rnn.output());
    shape.dims[1] = rnn.projected;
    shape.dims[2] = rnn.hidden;
    there = rnn.projects();
  }
  const std::int64_t width = bytes_of_type(rnn.data_type);
  auto* const base = static_cast<char*>(const_cast<void*>(weights));
  if (matrix_address != nullptr) *matrix_address = there ? base + at * width : nullptr;
  if (matrix != nullptr) tensors()[matrix] = shape;
  const bool recurrent = which >= gates;
  const bool biased = which < 2 * gates && (rnn.bias == kDoubleBias ||
                                            rnn.bias == (recurrent ? kRecurrentBias : kInputBias));
  const std::int64_t among = rnn.bias == kRecurrentBias ? which - gates : which;
  std::int64_t bias_at = layer * rnn.biases() + among * rnn.hidden;
  for (std::int64_t each = 0; each < rnn.layers * rnn.directions; ++each) {
    bias_at += rnn.matrices(each);
  }
  if (bias_address != nullptr) *bias_address = biased ? base + bias_at * width : nullptr;
  if (bias != nullptr) tensors()[bias] = {rnn.data_type, {1, rnn.hidden, 1}};
  return kSuccess;
}

CUDNN int cudnnGetTensorNdDescriptor(void* descriptor, int requested, int* data_type, int* count,
                                     int* dims, int* strides) {
  const gapless::simgpu::Entry entry;
  const Tensor& tensor = tensors()[descriptor];
  *data_type = tensor.data_type;
  *count = 3;
  std::int64_t stride = 1;
  for (int i = 2; i >= 0; --i) {
    if (i < requested) {
      dims[i] = static_cast<int>(tensor.dims[i]);
      strides[i] = static_cast<int>(stride);
    }
    stride *= tensor.dims[i];
  }
  return kSuccess;
}
CUDNN int cudnnDestroyTensorDescriptor(void* descriptor) {
  const gapless::simgpu::Entry entry;
  tensors().erase(descriptor);
  return simgpu_drop(descriptor);
}

CUDNN int cudnnSetRNNDataDescriptor(void* descriptor, int, int, int steps, int batch, int,
                                    const int*, void*) {
  const gapless::simgpu::Entry entry;
  sequences()[descriptor] = {steps, batch};
  return kSuccess;
}
CUDNN int cudnnDestroyRNNDataDescriptor(void* descriptor) {
  const gapless::simgpu::Entry entry;
  sequences().erase(descriptor);
  return simgpu_drop(descriptor);
}
CUDNN int cudnnGetRNNTempSpaceSizes(void*, void* descriptor, int mode, void* data,
                                    std::size_t* workspace_bytes, std::size_t* reserve_bytes) {
  const gapless::simgpu::Entry entry;
  simgpu_guess("libcudnn.so.9");
  const Rnn& rnn = rnns()[descriptor];
  const Sequence& sequence = sequences()[data];
  const std::int64_t cells = rnn.layers * rnn.directions * sequence.steps * sequence.batch *
                             rnn.hidden * bytes_of_type(rnn.data_type);
  if (workspace_bytes != nullptr) {
    *workspace_bytes =
        static_cast<std::size_t>(rnn.gates() * cells / std::max<std::int64_t>(rnn.layers, 1));
  }
  const bool training = mode == 1;
  if (reserve_bytes != nullptr) {
    *reserve_bytes = static_cast<std::size_t>(training ? (rnn.gates() + 2) * cells : 0);
  }
  return kSuccess;
}
