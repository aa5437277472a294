#include "simgpu/torch/drawn_numbers.h"

#include <array>
#include <atomic>
#include <mutex>

namespace gapless::simgpu {
namespace {

struct Drawn {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  double like = 0;
};

// What was drawn is asked for at once, or never.
struct AllDrawn {
  std::mutex mutex;
  std::array<std::optional<Drawn>, 8> ring;
  std::size_t next = 0;
  std::atomic<bool> any{false};

  std::optional<Drawn>* find(const at::Tensor& tensor) {
    for (std::optional<Drawn>& one : ring) {
      if (one && one->storage._unsafe_get_target() == tensor.storage().unsafeGetStorageImpl() &&
          !one->storage.expired()) {
        return &one;
      }
    }
    return nullptr;
  }
};

AllDrawn& drawn() {
  static AllDrawn& all = *new AllDrawn;  // as long as there are tensors
  return all;
}

std::optional<double> drawn_by(const OperatorFacts& facts, const c10::IValue* arguments) {
  const bool normal = facts.name == "aten::normal_";
  if (!normal && facts.name != "aten::uniform_") return std::nullopt;
  if (!arguments[1].isDouble() || !arguments[2].isDouble()) return std::nullopt;
  const double first = arguments[1].toDouble();
  const double second = arguments[2].toDouble();
  return normal ? first + second / 2 : (first + second) / 2;
}

}  // namespace

void note_written(const OperatorFacts& facts, const c10::IValue* arguments,
                  const at::Tensor& written) {
  const auto like = drawn_by(facts, arguments);
  AllDrawn& all = drawn();
  if ((!like && !all.any) || !written.is_cuda() || !written.has_storage()) return;
  const std::scoped_lock lock(all.mutex);
  if (std::optional<Drawn>* const before = all.find(written)) before->reset();
  if (!like) return;
  all.ring[all.next++ % all.ring.size()] = Drawn{written.storage().getWeakStorageImpl(), *like};
  all.any = true;
}

std::optional<double> drawn_number(const at::Tensor& tensor) {
  AllDrawn& all = drawn();
  if (!all.any || !tensor.defined() || !tensor.is_cuda() || !tensor.has_storage()) {
    return std::nullopt;
  }
  const std::scoped_lock lock(all.mutex);
  const std::optional<Drawn>* const found = all.find(tensor);
  return found == nullptr ? std::nullopt : std::optional((*found)->like);
}

}  // namespace gapless::simgpu
