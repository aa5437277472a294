#include "simgpu/torch/list_elements.h"

#include <c10/util/irange.h>

namespace gapless::simgpu {
namespace {

using Role = OperatorFacts::Role;

// Where all lists of tensors are equally long.
std::optional<std::size_t> length_of_lists(const OperatorFacts& facts,
                                           const c10::IValue* arguments) {
  std::optional<std::size_t> length;
  for (const std::size_t i : c10::irange(facts.arguments.size())) {
    if (facts.arguments[i].role == Role::other || !arguments[i].isList()) continue;
    const std::size_t found = arguments[i].toListRef().size();
    if (length.value_or(found) != found) return std::nullopt;
    length = found;
  }
  return length;
}

// Where all that is read is known.
std::vector<std::size_t> known_places(const OperatorFacts& facts, const c10::IValue* arguments,
                                      std::size_t length) {
  std::vector<bool> known(length, true);
  for (const std::size_t i : c10::irange(facts.arguments.size())) {
    const OperatorFacts::Argument& fact = facts.arguments[i];
    if (fact.role == Role::other) continue;
    if (arguments[i].isTensor() && known_of(arguments[i].toTensor(), fact) == kNone) return {};
    if (!arguments[i].isList()) continue;
    for (const std::size_t place : c10::irange(length)) {
      const c10::IValue& element = arguments[i].toListRef()[place];
      known[place] =
          known[place] && element.isTensor() && known_of(element.toTensor(), fact) != kNone;
    }
  }
  std::vector<std::size_t> places;
  for (const std::size_t place : c10::irange(length)) {
    if (known[place]) places.push_back(place);
  }
  return places;
}

// The elements at those places, also of a list of scalars; what is no such list stays as it is.
c10::IValue at_places(const c10::IValue& value, std::size_t length,
                      const std::vector<std::size_t>& places) {
  if (!value.isList() || value.toListRef().size() != length) return value;
  c10::impl::GenericList made(value.toList().elementType());
  for (const std::size_t place : places) made.push_back(value.toListRef()[place]);
  return made;
}

}  // namespace

std::optional<SomeElements> prepare_elements(const OperatorFacts& facts,
                                             const c10::IValue* arguments) {
  if (!facts.by_element || !facts.computable) return std::nullopt;
  const auto length = length_of_lists(facts, arguments);
  if (!length) return std::nullopt;
  SomeElements made{*length, known_places(facts, arguments, *length), {}, {}};
  if (made.places.empty()) return std::nullopt;
  torch::jit::Stack some;
  for (const std::size_t i : c10::irange(facts.arguments.size())) {
    some.push_back(at_places(arguments[i], *length, made.places));
  }
  made.computation = prepare(facts, some.data(), least_known(facts, some.data()));
  made.written = written_by(facts, some.data(), /*computes=*/true);
  return made;
}

void keep_elements(const c10::OperatorHandle& op, const OperatorFacts& facts, SomeElements& some,
                   const torch::jit::Stack& results) {
  if (!compute(op, some.computation)) return;
  torch::jit::Stack made;
  for (std::size_t i = results.size() - facts.fresh.size(); i < results.size(); ++i) {
    made.push_back(at_places(results[i], some.length, some.places));
  }
  keep(facts, some.computation, made, some.written);
}

}  // namespace gapless::simgpu
