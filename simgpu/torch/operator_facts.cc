#include "simgpu/torch/operator_facts.h"

#include <array>
#include <string_view>

#include <ATen/core/enum_tag.h>

namespace gapless::simgpu {
namespace {

template <std::size_t N>
bool is_one_of(const std::string& name, const std::array<std::string_view, N>& names) {
  for (const std::string_view each : names) {
    if (name == each) return true;
  }
  return false;
}

// In place, of whatever was there before.
constexpr std::array<std::string_view, 13> kFills = {
    "aten::copy_",         "aten::fill_",      "aten::zero_",        "aten::uniform_",
    "aten::normal_",       "aten::random_",    "aten::exponential_", "aten::bernoulli_",
    "aten::cauchy_",       "aten::geometric_", "aten::log_normal_",  "aten::_foreach_zero_",
    "aten::_foreach_copy_"};

// Without the underscore of those in place.
constexpr std::array<std::string_view, 25> kCarries = {
    "aten::scatter",        "aten::index_put",  "aten::_index_put_impl",
    "aten::index_copy",     "aten::index_fill", "aten::masked_fill",
    "aten::masked_scatter", "aten::put",        "aten::fill_diagonal",
    "aten::scatter_add",    "aten::index_add",  "aten::cat",
    "aten::stack",          "aten::index",      "aten::index_select",
    "aten::gather",         "aten::take",       "aten::embedding",
    "aten::flip",           "aten::roll",       "aten::repeat",
    "aten::clone",          "aten::sum",        "aten::mean",
    "aten::cumsum"};

// Results that are given as arguments, without being called out=.
constexpr std::array<std::string_view, 2> kOnlyWrite = {"aten::_cummax_helper",
                                                        "aten::_cummin_helper"};

// By the numbers of their first argument.
constexpr std::array<std::string_view, 8> kSizedByData = {
    "aten::nonzero",           "aten::_unique",
    "aten::_unique2",          "aten::unique_dim",
    "aten::bincount",          "aten::unique_consecutive",
    "aten::repeat_interleave", "aten::unique_dim_consecutive"};

constexpr std::array<std::string_view, 8> kIndices = {
    "aten::argmax", "aten::argmin", "aten::topk",   "aten::sort",
    "aten::max",    "aten::min",    "aten::median", "aten::multinomial"};

constexpr std::array<std::string_view, 9> kPredicates = {
    "aten::eq", "aten::ne",    "aten::lt",       "aten::le",      "aten::gt",
    "aten::ge", "aten::isnan", "aten::isposinf", "aten::isneginf"};

constexpr std::array<std::string_view, 12> kNoValues = {
    "aten::resize_",     "aten::set_",      "aten::record_stream",   "aten::as_strided",
    "aten::_pin_memory", "aten::is_pinned", "aten::_assert_async",   "aten::new_empty",
    "aten::resize_as_",  "aten::is_set_to", "aten::_resize_output_", "aten::new_empty_strided"};

bool holds_tensors(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  if (const auto list = type->cast<c10::ListType>()) return holds_tensors(list->getElementType());
  if (const auto maybe = type->cast<c10::OptionalType>()) {
    return holds_tensors(maybe->getElementType());
  }
  return false;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

}  // namespace

OperatorFacts OperatorFacts::of(const c10::OperatorHandle& op) {
  OperatorFacts facts;
  const c10::FunctionSchema& schema = op.schema();
  facts.base = schema.name();
  facts.name = facts.base;
  if (!schema.overload_name().empty()) facts.name += "." + schema.overload_name();
  const bool fills = is_one_of(facts.base, kFills);
  const bool only_writes = is_one_of(facts.base, kOnlyWrite);
  bool shares_out = false;
  for (const c10::Argument& argument : schema.arguments()) {
    Argument made;
    if (holds_tensors(argument.type())) {
      made.role = !is_written(argument) ? Role::reads
                  : argument.is_out() || only_writes || (fills && !facts.writes)
                      ? Role::writes
                      : Role::reads_and_writes;
      made.resized = is_written(argument) && argument.is_out();
      made.chooses =
          argument.name() == "index" || argument.name() == "indices" || argument.name() == "mask";
      // Of torch's GradScaler.
      made.tells_infinite = is_written(argument) && argument.name() == "found_inf";
      facts.writes = facts.writes || is_written(argument);
    }
    const auto place = static_cast<int>(facts.arguments.size());
    shares_out = shares_out || (argument.name() == "scalars" && made.role != Role::other);
    if (argument.name() == "generator") facts.generator = place;
    if (argument.name() == "dim") facts.dim = place;
    if (argument.name() == "minlength" || argument.name() == "output_size") {
      facts.told_size = place;
    }
    facts.arguments.push_back(made);
  }
  for (const c10::Argument& result : schema.returns()) {
    if (result.name() == "info") facts.failures = static_cast<int>(facts.fresh.size());
    facts.fresh.push_back(holds_tensors(result.type()) && result.alias_info() == nullptr);
  }
  // As sdp_utils.cpp chooses them; an older GPU has another kernel, which may take more.
  facts.for_ampere = facts.base.find("flash_attention") != std::string::npos ||
                     facts.base.find("cudnn_attention") != std::string::npos;
  facts.for_ampere_in_bfloat16 = facts.base.find("efficient_attention") != std::string::npos;
  if (is_one_of(
          facts.base.ends_with('_') ? facts.base.substr(0, facts.base.size() - 1) : facts.base,
          kCarries)) {
    facts.in_part = InPart::carries;
  } else if (op.hasTag(at::Tag::pointwise) || facts.base == "aten::copy_") {
    facts.in_part = InPart::places;
  }
  // Where "scalars" are a tensor, its numbers belong to the elements.
  facts.by_element = facts.base.rfind("aten::_foreach_", 0) == 0 && !shares_out;
  facts.copies = facts.base == "aten::copy_";
  facts.reads_back = facts.base == "aten::_local_scalar_dense";
  if (facts.base == "aten::masked_select") {
    facts.sized_by = {1};  // the mask, whatever it is applied to
  } else if (facts.base == "torchvision::nms") {
    facts.sized_by = {0, 1};
  } else if (is_one_of(facts.base, kSizedByData)) {
    facts.sized_by = {0};
  }
  if (facts.base == "aten::bincount" || facts.base == "aten::repeat_interleave") {
    facts.most = Most::unbounded;
  } else if (facts.base == "torchvision::nms" || facts.base.rfind("aten::unique_", 0) == 0) {
    facts.most = Most::along_dim;
  }
  facts.one_at_least =
      facts.base == "torchvision::nms" || facts.base.find("unique") != std::string::npos;
  // A program's own random numbers on the host are not to change.
  const bool random = op.hasTag(at::Tag::nondeterministic_seeded);
  facts.computable = op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU) &&
                     !(random && facts.generator < 0) && !facts.reads_back;
  if (random) facts.in_part = InPart::no;
  // aten::max and its like also compare two tensors, or find a number without its place.
  const bool finds = facts.base == "aten::argmax" || facts.base == "aten::argmin" ||
                     facts.base == "aten::multinomial" || facts.fresh.size() == 2;
  if (finds && is_one_of(facts.base, kIndices)) facts.guess = Guess::index;
  if (is_one_of(facts.base, kPredicates)) facts.guess = Guess::predicate;
  if (facts.name == "aten::where.self") facts.guess = Guess::choice;
  if (facts.base == "aten::any") facts.guess = Guess::any;
  if (facts.base == "aten::sum" || facts.base == "aten::count_nonzero") facts.guess = Guess::count;
  facts.indices = IndexCheck::of(op);
  return facts;
}

bool has_no_values(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string& base = schema.name();
  // What ranks send each other is written by NCCL, which knows of which bytes anybody knows.
  const bool communicates = base.rfind("c10d::", 0) == 0 || base.rfind("_c10d_functional", 0) == 0;
  if (communicates || is_one_of(base, kNoValues) || base.rfind("aten::empty", 0) == 0 ||
      base.rfind("aten::_empty", 0) == 0) {
    return true;
  }
  bool writes = false;
  for (const c10::Argument& argument : schema.arguments()) writes = writes || is_written(argument);
  bool views = false;
  for (const c10::Argument& result : schema.returns()) {
    views = views || (result.alias_info() != nullptr && !result.alias_info()->isWrite());
  }
  return views && !writes;
}

}  // namespace gapless::simgpu
