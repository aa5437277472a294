// StorageNotes: what is known of a tensor as a whole, whose numbers are not: by its storage, and of
// the last few that it was noted of, for it is asked for at once or never.
//
//   note(x.isnan(), false)   [ storage of x.isnan() | false ]
//   of(the same)             false
//   of(another), or when that storage is gone: nothing
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

namespace gapless::simgpu {

template <class Note, std::size_t kKept>
class StorageNotes {
 public:
  /// In place of what was noted of it before. The tensor has a storage, here and below.
  void note(const at::Tensor& tensor, Note note) {
    const std::scoped_lock lock(mutex_);
    if (std::optional<Entry>* const before = find(tensor)) before->reset();
    ring_[next_++ % kKept] = Entry{tensor.storage().getWeakStorageImpl(), std::move(note)};
    any_ = true;
  }

  void forget(const at::Tensor& tensor) {
    if (!any_) return;
    const std::scoped_lock lock(mutex_);
    if (std::optional<Entry>* const before = find(tensor)) before->reset();
  }

  std::optional<Note> of(const at::Tensor& tensor) {
    if (!any_) return std::nullopt;
    const std::scoped_lock lock(mutex_);
    const std::optional<Entry>* const found = find(tensor);
    return found == nullptr ? std::nullopt : std::optional<Note>((*found)->note);
  }

  /// Whether anything was ever noted.
  [[nodiscard]] bool any() const { return any_; }

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    Note note;
  };

  std::optional<Entry>* find(const at::Tensor& tensor) {
    const c10::StorageImpl* const wanted = tensor.storage().unsafeGetStorageImpl();
    for (std::optional<Entry>& one : ring_) {
      if (one && one->storage._unsafe_get_target() == wanted && !one->storage.expired()) {
        return &one;
      }
    }
    return nullptr;
  }

  std::mutex mutex_;
  std::array<std::optional<Entry>, kKept> ring_;
  std::size_t next_ = 0;
  std::atomic<bool> any_{false};
};

}  // namespace gapless::simgpu
