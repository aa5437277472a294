#include "simgpu/torch/guesses.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>

#include "simgpu/process/values.h"
#include "simgpu/torch/device_tensor.h"
#include "simgpu/torch/drawn_numbers.h"

namespace gapless::simgpu {
namespace {

constexpr double kWitness = 0.5;  // an unknown number, drawn_numbers.h apart

// Each row's choices, all different: in turn, spread, or by chance.
class Chooser {
 public:
  Chooser(std::int64_t choices, std::int64_t rows, std::int64_t each)
      : unknown_(simgpu_unknown()),
        choices_(choices),
        picks_(rows * each),
        busiest_(std::min(
            1.0, static_cast<double>(each) / static_cast<double>(choices) * (1 + unknown_.skew))),
        random_(unknown_.seed + drawn()) {}

  void row(std::vector<std::int64_t>& chosen) {
    const auto each = static_cast<std::int64_t>(chosen.size());
    if (each == choices_) {
      std::iota(chosen.begin(), chosen.end(), 0);
      return;
    }
    const bool routes = picks_ >= choices_;
    const bool skewed = unknown_.skew > 0 && routes && choices_ > 1;
    if (unknown_.noise && !skewed) return by_chance(chosen);
    std::int64_t k = 0;
    if (skewed) {
      due_ += busiest_;
      if (due_ >= 1) {
        due_ -= 1;
        chosen[static_cast<std::size_t>(k++)] = 0;
      }
    }
    for (; k < each; ++k, ++next_) {
      chosen[static_cast<std::size_t>(k)] = skewed   ? 1 + next_ % (choices_ - 1)
                                            : routes ? next_ % choices_
                                                     : (2 * next_ + 1) * choices_ / (2 * picks_);
    }
  }

 private:
  static std::uint64_t drawn() {
    static std::atomic<std::uint64_t> times{0};
    return times++;
  }
  void by_chance(std::vector<std::int64_t>& chosen) {
    std::uniform_int_distribution<std::int64_t> any(0, choices_ - 1);
    for (auto at = chosen.begin(); at != chosen.end(); ++at) {
      do {
        *at = any(random_);
      } while (std::find(chosen.begin(), at, *at) != at);
    }
  }

  SimgpuUnknown unknown_;
  std::int64_t choices_;
  std::int64_t picks_;
  double busiest_;  // the part of rows that choose the busiest
  double due_ = 0;
  std::int64_t next_ = 0;
  std::mt19937_64 random_;
};

at::Tensor flags_like(const at::Tensor& result, bool value) {
  at::Tensor flags(at::detail::empty_strided_cpu(result.sizes(), result.strides(), at::kBool));
  flags.fill_(value);
  return flags;
}

at::Tensor of_number(double number) {
  at::Tensor one(at::detail::empty_strided_cpu({}, {}, at::kDouble));
  one.fill_(number);
  return one;
}

// The numbers as doubles; those that nobody knows, as one that is like them.
at::Tensor or_witness(const at::Tensor& tensor, bool known) {
  if (known) return (tensor.is_cuda() ? twin_of(tensor) : tensor).to(at::kDouble);
  return of_number(drawn_number(tensor).value_or(kWitness));
}

bool is_same(const at::Tensor& a, const at::Tensor& b) {
  return a.is_same(b) || (a.is_alias_of(b) && a.storage_offset() == b.storage_offset() &&
                          a.sizes() == b.sizes() && a.strides() == b.strides());
}

bool is_known(const at::Tensor& tensor) {
  return tensor.is_cpu() ||
         (is_on_device(tensor) && is_small(tensor) && knowledge_of(tensor) != kNone);
}

}  // namespace

void guess_indices(const at::Tensor& indices, std::optional<std::int64_t> dim,
                   std::int64_t choices) {
  if (!is_on_device(indices) || indices.scalar_type() != at::kLong || !is_small(indices) ||
      indices.numel() == 0 || choices < 1) {
    return;
  }
  const std::int64_t each = dim ? indices.size(*dim) : 1;
  if (each > choices) return;
  const std::int64_t rows = indices.numel() / each;
  at::Tensor rows_first(at::detail::empty_strided_cpu({rows, each}, {each, 1}, at::kLong));
  auto* const to = rows_first.mutable_data_ptr<std::int64_t>();
  Chooser chooser(choices, rows, each);
  std::vector<std::int64_t> chosen(static_cast<std::size_t>(each));
  for (std::int64_t row = 0; row < rows; ++row) {
    chooser.row(chosen);
    std::copy(chosen.begin(), chosen.end(), to + row * each);
  }
  if (!dim) {
    write_values(indices, rows_first.view(indices.sizes()), kLikely);
    return;
  }
  const at::Tensor last = indices.movedim(*dim, -1);
  write_values(indices, rows_first.view(last.sizes()).movedim(-1, *dim), kLikely);
}

at::Tensor guess_predicate(const std::string& base, const at::Tensor& a, const c10::IValue* b,
                           const at::Tensor& result) {
  if (!is_small(result) || result.scalar_type() != at::kBool) return {};
  if (b == nullptr) return flags_like(result, false);  // neither infinite nor no number
  at::Tensor left;
  at::Tensor right;
  if (b->isTensor()) {
    const at::Tensor& other = b->toTensor();
    const bool a_known = is_known(a);
    const bool b_known = is_known(other);
    if (!a_known && !b_known) {
      // Neither is more than the other: what checks that boxes are none (x1 >= x0) goes on.
      const bool same = is_same(a, other);
      return flags_like(result, base == "aten::eq"   ? same
                                : base == "aten::ne" ? !same
                                                     : base == "aten::le" || base == "aten::ge");
    }
    left = or_witness(a, a_known);
    right = or_witness(other, b_known);
  } else {
    if (!b->isScalar()) return {};
    left = or_witness(a, false);
    right = of_number(b->toScalar().toDouble());
  }
  const at::Tensor found = base == "aten::eq"   ? left.eq(right)
                           : base == "aten::ne" ? left.ne(right)
                           : base == "aten::lt" ? left.lt(right)
                           : base == "aten::le" ? left.le(right)
                           : base == "aten::gt" ? left.gt(right)
                                                : left.ge(right);
  return found.expand(result.sizes());
}

bool asks_if_finite(const at::Tensor& a, const c10::IValue* b) {
  if (b == nullptr) return true;
  if (b->isTensor()) return is_same(a, b->toTensor());
  return b->isScalar() && b->toScalar().isFloatingPoint() && std::isinf(b->toScalar().toDouble());
}

std::optional<std::int64_t> most_of(const OperatorFacts& facts, const at::Tensor& from,
                                    std::optional<std::int64_t> dim) {
  switch (facts.most) {
    case OperatorFacts::Most::numbers:
      return from.numel();
    case OperatorFacts::Most::along_dim:
      return from.dim() == 0  ? 1
             : dim            ? from.size(*dim)
             : facts.dim >= 0 ? from.numel()  // of the flattened tensor
                              : from.size(0);
    case OperatorFacts::Most::unbounded:
      break;
  }
  return std::nullopt;
}

void guess_count(const OperatorFacts& facts, const at::Tensor& flags, const at::Tensor& result) {
  if (!is_on_device(result) || result.dim() != 0 || flags.numel() == 0) return;
  at::Tensor values(at::detail::empty_strided_cpu({}, {}, at::kLong));
  values.fill_(
      facts.guess == OperatorFacts::Guess::any ? 1 : std::max<std::int64_t>(1, flags.numel() - 1));
  write_values(result, values.to(result.scalar_type()), kLikely);
}

void guess_all_chosen(const OperatorFacts& facts, const at::Tensor& from,
                      const at::Tensor& places) {
  if (!is_on_device(places) || !is_small(places) || places.scalar_type() != at::kLong) return;
  const bool finds_places = facts.base == "aten::nonzero" && places.dim() == 2;
  if (!finds_places && facts.base != "torchvision::nms") return;
  const std::int64_t dims = finds_places ? places.size(1) : 1;
  const std::int64_t count = dims == 0 ? 0 : places.numel() / dims;
  if (count == 0) return;
  at::Tensor all(at::detail::empty_strided_cpu({count, dims}, {dims, 1}, at::kLong));
  auto* const to = all.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    for (std::int64_t d = dims - 1; d >= 0; --d) {
      const std::int64_t size = finds_places ? from.size(d) : count;
      to[i * dims + d] = rest % size;
      rest /= size;
    }
  }
  write_values(places, all.view(places.sizes()), kLikely);
}

void guess_noise(const at::Tensor& tensor) {
  if (!simgpu_unknown().noise || !is_on_device(tensor) || !is_small(tensor)) return;
  const bool flags = tensor.scalar_type() == at::kBool;
  const bool integers = at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
  if (!flags && !integers && !at::isFloatingType(tensor.scalar_type())) return;
  at::Tensor values(at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), at::kFloat));
  static std::atomic<std::uint64_t> times{0};
  std::mt19937_64 random(simgpu_unknown().seed + times++);
  std::normal_distribution<float> normal;
  const auto numbers = static_cast<std::int64_t>(values.storage().nbytes() / sizeof(float));
  auto* const to = static_cast<float*>(values.data_ptr());
  for (std::int64_t i = 0; i < numbers; ++i) to[i] = normal(random);
  // What a host looks at are losses, norms, variances, counts and lengths: none is negative.
  const at::Tensor amounts = values.abs();
  write_where(tensor,
              flags      ? values.gt(0)
              : integers ? amounts.mul(10).round().to(tensor.scalar_type())
                         : amounts.to(tensor.scalar_type()),
              known_where(tensor).flags.logical_not(), kLikely);
}

std::uint64_t seed_for(const c10::IValue& generator, const at::Device& device) {
  at::Generator of_torch = generator.isGenerator() ? generator.toGenerator()
                                                   : at::globalContext().defaultGenerator(device);
  const std::scoped_lock lock(of_torch.mutex());
  std::uint64_t seed = of_torch.current_seed() + simgpu_unknown().seed;
  if (of_torch.device().is_cuda()) {
    seed += 0x9e3779b97f4a7c15 * (1 + of_torch.unsafeGetGeneratorImpl()->get_offset());
  }
  return seed;
}

}  // namespace gapless::simgpu
