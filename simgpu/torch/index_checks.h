// Indices that a CUDA kernel asserts to be within what they choose from. Where they are known the
// assertion is ours to make, for what the kernels compute is not computed here.
//
//   F.embedding(ids {1, 200}, weight {100, 8})    aten::index_select: 200 is none of 100
//   the next call                                 CUDA error: device-side assert triggered
//
// Nothing else shows it: no weight is read, and a wrong vocabulary would fit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/dispatch/Dispatcher.h>

namespace gapless::simgpu {

class IndexCheck {
 public:
  /// Of operators that assert nothing, one that finds nothing.
  static IndexCheck of(const c10::OperatorHandle& op);

  /// What does not hold of these arguments, as far as their numbers are known: "index 200 in
  /// index_select, where there are 100".
  [[nodiscard]] std::optional<std::string> failure(const c10::IValue* arguments) const;

 private:
  enum class Kind {
    none,
    along_dim,  // `index` chooses along `dim` of the first argument
    list,       // so does each of `indices`, along the next ones; they may count from the end
    target      // each of `target` is a class of the first argument, or `ignore_index`
  };

  Kind kind_ = Kind::none;
  std::string name_;
  std::size_t index_ = 0;  // the arguments of those names
  std::size_t dim_ = 0;
  std::size_t ignore_ = 0;
  bool from_end_ = false;  // -1 is the last
};

}  // namespace gapless::simgpu
