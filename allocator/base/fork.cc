#include "allocator/base/fork.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

#include <pthread.h>

namespace gapless {

struct ForkList {
  std::mutex mutex;
  std::vector<AfterFork*> all;

  static ForkList& get() {
    static auto* list = [] {
      auto* made = new ForkList;  // as long as the process
      // Nobody changes the list while it is copied.
      (void)pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); },
                           [] {
                             ForkList& copy = get();
                             copy.mutex.unlock();
                             for (const AfterFork* one : copy.all) one->in_child_();
                           });
      return made;
    }();
    return *list;
  }
};

AfterFork::AfterFork(std::function<void()> in_child) : in_child_(std::move(in_child)) {
  ForkList& list = ForkList::get();
  const std::scoped_lock lock(list.mutex);
  list.all.push_back(this);
}

AfterFork::~AfterFork() {
  ForkList& list = ForkList::get();
  const std::scoped_lock lock(list.mutex);
  std::erase(list.all, this);
}

}  // namespace gapless
