#include "simgpu/process/shared_usage.h"

#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gapless::simgpu {
namespace {

bool has_ended(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

}  // namespace

SharedUsage::SharedUsage(const std::string& file) {
  if (file.empty()) return;
  const int descriptor = open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) return;
  constexpr std::size_t kBytes = kProcesses * sizeof(Slot);
  if (ftruncate(descriptor, kBytes) == 0) {
    void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (at != MAP_FAILED) slots_ = static_cast<Slot*>(at);
  }
  close(descriptor);
}

SharedUsage::~SharedUsage() {
  if (slots_ != nullptr) munmap(slots_, kProcesses * sizeof(Slot));
}

SharedUsage::Slot* SharedUsage::own() {
  const pid_t pid = getpid();
  if (own_ != nullptr && own_->pid.load() == pid) return own_;
  for (Slot* slot = slots_; slot != slots_ + kProcesses; ++slot) {
    pid_t before = slot->pid.load();
    if (before != 0 && before != pid && !has_ended(before)) continue;
    if (!slot->pid.compare_exchange_strong(before, pid)) continue;
    for (auto& bytes : slot->bytes) bytes.store(0);
    return own_ = slot;
  }
  return nullptr;
}

void SharedUsage::publish(int device, std::uint64_t bytes) {
  if (slots_ == nullptr || device < 0 || device >= kDevices) return;
  if (Slot* slot = own(); slot != nullptr) slot->bytes[device].store(bytes);
}

std::uint64_t SharedUsage::of_others(int device) const {
  if (slots_ == nullptr || device < 0 || device >= kDevices) return 0;
  std::uint64_t sum = 0;
  for (const Slot* slot = slots_; slot != slots_ + kProcesses; ++slot) {
    const pid_t pid = slot->pid.load();
    if (pid == 0 || pid == getpid()) continue;
    const std::uint64_t bytes = slot->bytes[device].load();
    if (bytes != 0 && !has_ended(pid)) sum += bytes;
  }
  return sum;
}

}  // namespace gapless::simgpu
