// Forked children: what they find of their parent's is as the parent's threads left it.
//
//   parent   thread 1: alloc [lock ......... unlock]
//            thread 2:           fork()
//   child    thread 2 only, and the lock is taken for ever
//
// CUDA cannot be used in such a child either. So nothing of its parent's is touched in it: who has
// something that must not be makes an AfterFork, and turns it off there. Children that exec do not
// come here, nor those of a process that has not used CUDA yet.
#pragma once

#include <functional>
#include <stdexcept>

namespace gapless {

/// Thrown where a forked child asks for what is its parent's.
class ForkedChild : public std::runtime_error {
 public:
  ForkedChild()
      : std::runtime_error(
            "this process was forked from one that uses CUDA, which cannot be used here: start it "
            "with spawn or forkserver, or fork before CUDA is used") {}
};

/// As long as it lives, `in_child` is called in each process that is forked from this one, when
/// that has one thread yet. It must take no lock.
class AfterFork {
 public:
  explicit AfterFork(std::function<void()> in_child);
  ~AfterFork();
  AfterFork(const AfterFork&) = delete;
  AfterFork& operator=(const AfterFork&) = delete;

 private:
  friend struct ForkList;
  std::function<void()> in_child_;
};

}  // namespace gapless
