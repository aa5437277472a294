// How many bytes the loss kernels move: counted, as they run as PTX. One read and one write of the
// logits is the least that forward and backward together can do; apart they read them once more,
// and so does the kernel that does both, from the cache.
#include <gtest/gtest.h>

#include "kernels/cross_entropy.h"
#include "tests/support/ptx_machine.h"

namespace gapless::simgpu::ptx {
namespace {

constexpr std::int64_t kRows = 4;

struct Traffic {
  double read;
  double written;
};

// Of lanes: what a block reads of its row once counts for each of its threads.
Traffic traffic(const char* kernel, unsigned element_bytes, std::int64_t classes,
                std::int64_t gap = 0) {
  HostedMemory memory;
  static const std::string ptx = text_of_file(GAPLESS_KERNELS_PTX "/cross_entropy.ptx");
  const Module module = parsed(ptx, memory);
  const auto place = [&](std::int64_t bytes) {
    return memory.alloc(static_cast<std::uint64_t>(bytes));
  };
  const auto pointer = [](std::uint64_t address) { return reinterpret_cast<void*>(address); };
  gapless_cross_entropy rows = GAPLESS_CROSS_ENTROPY_INIT;
  rows.rows = kRows;
  rows.classes = classes;
  rows.row_stride = rows.gradient_row_stride = classes + gap;
  rows.class_stride = rows.gradient_class_stride = 1;
  rows.logits = rows.gradients = pointer(place((classes + gap) * kRows * element_bytes));
  rows.labels =
      static_cast<std::int64_t*>(pointer(memory.holding(std::vector<std::int64_t>{0, 1, 2, 3})));
  rows.label_stride = 1;
  rows.ignore_index = -100;
  for (float** result :
       {&rows.largest, &rows.others, &rows.label_logit, &rows.losses, &rows.row_weights}) {
    *result = static_cast<float*>(pointer(place(kRows * 4)));
  }
  std::vector<unsigned char> bytes(sizeof rows);
  std::memcpy(bytes.data(), &rows, sizeof rows);
  LaunchSettings settings;
  settings.grid = {kRows, 1, 1};
  settings.block = {512, 1, 1};
  const LaunchResult result = launch(module.kernels.at(kernel), settings, bytes, memory);
  EXPECT_TRUE(result.completed);
  for (const Finding& finding : result.findings) ADD_FAILURE() << text_of(finding);
  return {static_cast<double>(result.global_read_bytes),
          static_cast<double>(result.global_written_bytes)};
}

// What each byte of logits adds.
Traffic for_each_byte(const std::string& kernel, unsigned element_bytes, std::int64_t gap) {
  constexpr std::int64_t kClasses = 30011;
  const Traffic one = traffic(kernel.c_str(), element_bytes, kClasses, gap);
  const Traffic other = traffic(kernel.c_str(), element_bytes, 2 * kClasses, gap);
  const double more = static_cast<double>(kClasses * kRows * element_bytes);
  return {(other.read - one.read) / more, (other.written - one.written) / more};
}

TEST(KernelTraffic, IsThatOfTheLogits) {
  for (const unsigned bytes : {2U, 4U}) {
    const std::string type = bytes == 2 ? "2" : "0";
    for (const std::int64_t gap : {0, 3}) {
      const auto of = [&](const char* pass) {
        return for_each_byte(std::string("cross_entropy_") + pass + "_" + type + "_plain", bytes,
                             gap);
      };
      const Traffic forward = of("forward");
      EXPECT_DOUBLE_EQ(forward.read, 1);
      EXPECT_DOUBLE_EQ(forward.written, 0);
      const Traffic backward = of("backward");
      EXPECT_DOUBLE_EQ(backward.read, 1);
      EXPECT_DOUBLE_EQ(backward.written, 1);
      const Traffic both = of("both");
      EXPECT_DOUBLE_EQ(both.read, 2);
      EXPECT_DOUBLE_EQ(both.written, 1);
    }
  }
}

}  // namespace
}  // namespace gapless::simgpu::ptx
