#include "simgpu/front/nccl/meeting.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gapless::simgpu::nccl {
namespace {

constexpr std::size_t kPage = 4096;

// A meeting that not all came to leaves its name behind: it goes when the process does.
void unlink_at_exit(const std::string& name) {
  static std::mutex mutex;  // ranks may be threads
  static auto& names = *new std::vector<std::string>;
  static const pid_t owner = getpid();
  static const int registered = std::atexit([] {
    if (getpid() != owner) return;  // a fork's end
    for (const std::string& each : names) shm_unlink(each.c_str());
  });
  (void)registered;
  const std::scoped_lock lock(mutex);
  names.push_back(name);
}

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

std::size_t Meeting::checks_at() const {
  return whole_pages(sizeof(Header) + sizeof(Member) * static_cast<std::size_t>(ranks_));
}

std::size_t Meeting::messages_at() const {
  return checks_at() + whole_pages(kChecks * sizeof(Check) * static_cast<std::size_t>(ranks_));
}

std::size_t Meeting::letters_at() const {
  return messages_at() + whole_pages(2 * sizeof(Message) * static_cast<std::size_t>(ranks_));
}

Meeting::Meeting(const std::string& name, int ranks, int rank, int gpu)
    : ranks_(ranks), rank_(rank) {
  const auto n = static_cast<std::size_t>(ranks);
  bytes_ = letters_at() + whole_pages(kLetters * n * n * sizeof(Letter));
  const int file = shm_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) throw std::runtime_error("shm_open " + name + ": " + std::strerror(errno));
  // Sparse: only what is touched takes memory. Zeros are the right begin of everything in it.
  const bool sized = ftruncate(file, static_cast<off_t>(bytes_)) == 0;
  void* const at =
      sized ? mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  const int error = errno;
  close(file);
  if (at == MAP_FAILED) throw std::runtime_error("mmap " + name + ": " + std::strerror(error));
  base_ = static_cast<char*>(at);
  header().members[rank].gpu.store(gpu);
  header().members[rank].pid.store(getpid());
  if (header().joined.fetch_add(1) + 1 == ranks) {
    shm_unlink(name.c_str());  // all are here
  } else {
    unlink_at_exit(name);
  }
}

Meeting::~Meeting() { munmap(base_, bytes_); }

Message& Meeting::message(int rank, std::uint64_t turn) const {
  auto* const all = reinterpret_cast<Message*>(base_ + messages_at());
  return all[2 * static_cast<std::size_t>(rank) + turn % 2];
}

Check& Meeting::check(int rank, std::uint64_t number) const {
  auto* const all = reinterpret_cast<Check*>(base_ + checks_at());
  return all[kChecks * static_cast<std::size_t>(rank) + number % kChecks];
}

Meeting::Letter& Meeting::letter(int from, int to, std::uint64_t number) const {
  auto* const all = reinterpret_cast<Letter*>(base_ + letters_at());
  const auto pair = static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) +
                    static_cast<std::size_t>(to);
  return all[kLetters * pair + number % kLetters];
}

bool Meeting::ended(int rank) const {
  const int pid = header().members[rank].pid.load();
  return pid != 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

int Meeting::rank_on_same_gpu() const {
  const int gpu = header().members[rank_].gpu.load();
  for (int other = 0; other < ranks_; ++other) {
    if (other != rank_ && came(other) && header().members[other].gpu.load() == gpu) return other;
  }
  return -1;
}

}  // namespace gapless::simgpu::nccl
