#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/module.h"
#include "kernels/parts.h"

namespace gapless::kernels {
namespace {

constexpr unsigned kThreads = 512;  // of cross_entropy.cu
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30;

enum class Pass { forward, losses, backward, both, combine };

// Zeros for what an older caller does not know of.
gapless_cross_entropy completed(const gapless_cross_entropy& given) {
  gapless_cross_entropy made = GAPLESS_CROSS_ENTROPY_INIT;
  std::memcpy(&made, &given, std::min(given.size, sizeof made));
  return made;
}

std::string missing(const gapless_cross_entropy& of, Pass pass) {
  if (of.type < GAPLESS_FLOAT32 || of.type > GAPLESS_BFLOAT16) {
    return "type: " + std::to_string(of.type) + ": float32 (0), float16 (1) or bfloat16 (2)";
  }
  if (of.rows < 0 || of.classes < 0) return "rows and classes: below zero";
  const std::int64_t total = of.total_classes != 0 ? of.total_classes : of.classes;
  if (of.first_class < 0 || of.first_class + of.classes > total) {
    return "first_class: the shard's classes end behind total_classes";
  }
  const bool is_shard = of.classes != total;
  if (pass == Pass::both && is_shard) return "a shard's losses have to be combined first";
  if (of.labels == nullptr) return "labels: NULL";
  if (pass != Pass::losses && pass != Pass::combine && of.logits == nullptr && of.classes != 0)
    return "logits: NULL";
  if (of.largest == nullptr || of.others == nullptr) return "largest, others: NULL";
  if (pass != Pass::backward && of.label_logit == nullptr) return "label_logit: NULL";
  if (pass != Pass::backward && of.label_smoothing != 0 && of.weighted == nullptr) {
    return "weighted: NULL, with label_smoothing";
  }
  if (of.class_weights != nullptr && of.label_smoothing != 0 && of.class_weight_sum == nullptr) {
    return "class_weight_sum: NULL, with class_weights and label_smoothing";
  }
  const bool gives_losses = pass == Pass::losses || pass == Pass::both;
  if (gives_losses && (of.losses == nullptr || of.row_weights == nullptr))
    return "losses, row_weights: NULL";
  const bool gives_gradients = pass == Pass::backward || pass == Pass::both;
  if (gives_gradients && of.gradients == nullptr && of.classes != 0) return "gradients: NULL";
  return {};
}

unsigned blocks_of_threads(std::int64_t rows) {
  return static_cast<unsigned>(std::min((rows + 255) / 256, kMostBlocks));
}

int run(const gapless_cross_entropy* given, void* stream, Pass pass, const char* name) {
  try {
    if (given == nullptr) return answer("NULL");
    const gapless_cross_entropy of = completed(*given);
    if (std::string error = missing(of, pass); !error.empty()) return answer(std::move(error));
    if (of.rows == 0) return answer({});
    const bool is_plain = of.class_weights == nullptr && of.label_smoothing == 0 &&
                          of.z_loss == 0 && of.soft_cap == 0;
    if (pass == Pass::losses) {
      return answer(launch(gapless_cross_entropy_fat_binary, "cross_entropy_losses",
                           {blocks_of_threads(of.rows), 256}, stream, &of));
    }
    const std::string kernel = std::string("cross_entropy_") + name + "_" +
                               std::to_string(of.type) + (is_plain ? "_plain" : "");
    const auto blocks = static_cast<unsigned>(std::min(of.rows, kMostBlocks));
    return answer(
        launch(gapless_cross_entropy_fat_binary, kernel.c_str(), {blocks, kThreads}, stream, &of));
  } catch (const std::exception& error) {  // there is no memory for a sentence
    return 1;
  }
}

int combine(const gapless_cross_entropy* given, const float* parts, std::int64_t shards,
            std::int64_t shard_stride, void* stream) {
  try {
    if (given == nullptr) return answer("NULL");
    const Parts of{completed(*given), parts, shards, shard_stride};
    if (std::string error = missing(of.rows, Pass::combine); !error.empty())
      return answer(std::move(error));
    if (parts == nullptr || shards < 1) return answer("parts: NULL, or of no shard");
    if (of.rows.rows == 0) return answer({});
    return answer(launch(gapless_cross_entropy_fat_binary, "cross_entropy_combine",
                         {blocks_of_threads(of.rows.rows), 256}, stream, &of));
  } catch (const std::exception& error) {
    return 1;
  }
}

}  // namespace
}  // namespace gapless::kernels

using gapless::kernels::Pass;

KERNELS_API int gapless_cross_entropy_forward(const gapless_cross_entropy* rows, void* stream) {
  return gapless::kernels::run(rows, stream, Pass::forward, "forward");
}
KERNELS_API int gapless_cross_entropy_losses(const gapless_cross_entropy* rows, void* stream) {
  return gapless::kernels::run(rows, stream, Pass::losses, "losses");
}
KERNELS_API int gapless_cross_entropy_backward(const gapless_cross_entropy* rows, void* stream) {
  return gapless::kernels::run(rows, stream, Pass::backward, "backward");
}
KERNELS_API int gapless_cross_entropy_both(const gapless_cross_entropy* rows, void* stream) {
  return gapless::kernels::run(rows, stream, Pass::both, "both");
}
KERNELS_API int gapless_cross_entropy_combine(const gapless_cross_entropy* rows, const float* parts,
                                              int64_t shards, int64_t shard_stride, void* stream) {
  return gapless::kernels::combine(rows, parts, shards, shard_stride, stream);
}
