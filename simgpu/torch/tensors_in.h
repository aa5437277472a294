// The tensors that an operator's argument or result holds: itself, or the elements of a list, of
// lists of such, or none where they are optional.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace gapless::simgpu {

/// Calls f(tensor) for each, until f is false; returns whether it never was.
template <class F>
bool each_tensor(const c10::IValue& value, F&& f) {
  if (value.isTensor()) return !value.toTensor().defined() || f(value.toTensor());
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (!each_tensor(element, f)) return false;
    }
  }
  return true;
}

/// The same value with each made another, f(tensor).
template <class F>
c10::IValue with_tensors(const c10::IValue& value, F&& f) {
  if (value.isTensor()) return value.toTensor().defined() ? f(value.toTensor()) : value;
  if (value.isList()) {
    c10::impl::GenericList made(value.toList().elementType());
    for (const c10::IValue& element : value.toListRef()) made.push_back(with_tensors(element, f));
    return made;
  }
  return value;
}

}  // namespace gapless::simgpu
