// libnccl.so.2: communicators and collectives of torch.distributed, over shared memory.
//
// Small messages are real: flags, counts, pickled objects arrive, and are summed. Of large ones
// only operation, size and type are compared. What NCCL's own buffers take is not known.
#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include <unistd.h>

#include "simgpu/front/nccl/communicator.h"
#include "simgpu/front/nccl/reduction.h"
#include "simgpu/process/library_handle.h"
#include "simgpu/process/ranks.h"

#define NCCL extern "C" __attribute__((visibility("default")))

using namespace gapless::simgpu;
using namespace gapless::simgpu::nccl;

namespace {

struct UniqueId {
  char text[128];
};

enum Kind : int {
  kBroadcast,
  kAllReduce,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kSplit
};

int join(Communicator** made, const std::string& name, int ranks, int rank, int device) {
  if (ranks < 1 || rank < 0 || rank >= ranks) return kInvalidArgument;
  simgpu_guess("libnccl.so.2");
  try {
    *made = Communicator::join(name, ranks, rank, device);
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "simgpu: NCCL: %s\n", error.what());
    return kSystemError;
  }
  if (!(*made)->shares_its_gpu()) return kSuccess;
  delete std::exchange(*made, nullptr);  // the others learn of it in their first collective
  return kInvalidUsage;
}

bool has(int device) {
  const Entry entry;
  return entry.process.has(device);
}

int installed_index(int device) {
  const Entry entry;
  return entry.process.installed_index(device);
}

// Of each byte whether it is known; empty where all are.
void keep_known_by_both(std::vector<unsigned char>& places,
                        const std::vector<unsigned char>& others) {
  if (places.empty()) {
    places = others;
  } else if (!others.empty()) {
    std::transform(places.begin(), places.end(), others.begin(), places.begin(),
                   std::bit_and<unsigned char>());
  }
}

// Everybody's numbers made one.
Contribution reduced(const std::vector<Contribution>& all, int type, int reduction,
                     std::size_t count) {
  Contribution sum = all.empty() ? Contribution{} : all[0];
  for (const Contribution& each : all) sum.known = sum.known && each.known;
  if (!sum.known || !can_reduce(type, reduction)) return {};
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    combine(type, reduction, sum.data.data(), all[rank].data.data(), count);
    keep_known_by_both(sum.places, all[rank].places);
  }
  if (reduction == kAverage) divide(type, sum.data.data(), count, static_cast<int>(all.size()));
  return sum;
}

// From every rank in turn, `bytes` bytes from `offset` on.
void write_rows(void* target, const std::vector<Contribution>& all, std::size_t ranks,
                std::size_t offset, std::size_t bytes) {
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    write_known(static_cast<char*>(target) + rank * bytes, all.empty() ? Contribution{} : all[rank],
                offset, bytes);
  }
}

}  // namespace

// --- communicators -------------------------------------------------------------------------------

NCCL int ncclGetVersion(int* version) {
  *version = 23099;
  return kSuccess;
}
NCCL const char* ncclGetErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kSystemError:
      return "unhandled system error";
    case kInvalidArgument:
      return "invalid argument";
    default:
      return "invalid usage";
  }
}
NCCL const char* ncclGetLastError(const Communicator*) { return last_error().c_str(); }
NCCL int ncclGetUniqueId(UniqueId* id) {
  std::random_device random;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->text, sizeof id->text, "/simgpu-%d-%08x%08x", static_cast<int>(getpid()),
                random(), random());
  return kSuccess;
}
NCCL int ncclCommInitRank(Communicator** made, int ranks, UniqueId id, int rank) {
  id.text[sizeof id.text - 1] = '\0';
  return join(made, id.text, ranks, rank, Process::current());
}
NCCL int ncclCommInitRankConfig(Communicator** made, int ranks, UniqueId id, int rank, void*) {
  return ncclCommInitRank(made, ranks, id, rank);
}
NCCL int ncclCommInitRankScalable(Communicator** made, int ranks, int rank, int, UniqueId* ids,
                                  void*) {
  return ncclCommInitRank(made, ranks, ids[0], rank);
}
NCCL int ncclCommInitAll(Communicator** made, int count, const int* devices) {
  UniqueId id;
  ncclGetUniqueId(&id);
  for (int rank = 0; rank < count; ++rank) {
    const int device = devices == nullptr ? rank : devices[rank];
    if (!has(device)) return kInvalidArgument;
    const int result = join(&made[rank], id.text, count, rank, device);
    if (result != kSuccess) return result;
    made[rank]->all_here();
  }
  return kSuccess;
}
NCCL int ncclCommFinalize(Communicator*) { return kSuccess; }
NCCL int ncclCommDestroy(Communicator* communicator) {
  delete communicator;
  return kSuccess;
}
NCCL int ncclCommAbort(Communicator* communicator) { return ncclCommDestroy(communicator); }
NCCL int ncclCommGetAsyncError(Communicator*, int* error) {
  *error = kSuccess;
  return kSuccess;
}
NCCL int ncclCommCount(const Communicator* communicator, int* count) {
  *count = communicator->ranks;
  return kSuccess;
}
NCCL int ncclCommCuDevice(const Communicator* communicator, int* device) {
  *device = communicator->device;
  return kSuccess;
}
NCCL int ncclCommUserRank(const Communicator* communicator, int* rank) {
  *rank = communicator->rank;
  return kSuccess;
}
NCCL int ncclCommGetUniqueId(Communicator*, UniqueId* id) { return ncclGetUniqueId(id); }
NCCL int ncclCommRegister(Communicator*, void* buffer, std::size_t, void** handle) {
  *handle = buffer;
  return kSuccess;
}
NCCL int ncclCommDeregister(Communicator*, void*) { return kSuccess; }
NCCL int ncclCommWindowRegister(Communicator*, void* buffer, std::size_t, void** window, int) {
  *window = buffer;
  return kSuccess;
}
NCCL int ncclCommWindowDeregister(Communicator*, void*) { return kSuccess; }

// Who has the same color makes a communicator, in the order of the keys.
NCCL int ncclCommSplit(Communicator* parent, int color, int key, Communicator** made, void*) {
  *made = nullptr;
  const auto ranks = static_cast<std::size_t>(parent->ranks);
  if (parent->ranks > 1 && color >= 0 && !ranks_from_environment().all()) {
    std::fprintf(stderr,
                 "simgpu: NCCL: a communicator of %d is split, and nobody knows how by those ranks "
                 "that do not run: run all (without --ranks, or SIMGPU_RANKS)\n",
                 parent->ranks);
    return kInvalidUsage;
  }
  struct Choice {
    int color;
    int key;
  };
  std::vector<Choice> choices(ranks, Choice{color, key});
  if (parent->meeting != nullptr) {
    // The choices travel as bytes of the host's: by a meeting of their own.
    const std::string name = parent->name + "-" + std::to_string(++parent->number);
    const Meeting meeting(name, parent->ranks, parent->rank, installed_index(parent->device));
    Message& mine = meeting.message(parent->rank, 1);
    std::memcpy(mine.told.data, &choices[0], sizeof(Choice));
    mine.turn.store(1, std::memory_order_release);
    Operation wait{parent, true, {}, [] {}};
    wait.advance = [&] {
      for (int other = 0; other < parent->ranks; ++other) {
        const Message& theirs = meeting.message(other, 1);
        if (theirs.turn.load(std::memory_order_acquire) != 1) return Progress::waiting;
        std::memcpy(&choices[static_cast<std::size_t>(other)], theirs.told.data, sizeof(Choice));
      }
      return Progress::done;
    };
    if (const int result = complete(std::move(wait)); result != kSuccess) return result;
  }
  if (color < 0) return kSuccess;  // NCCL_SPLIT_NOCOLOR
  int rank = 0;
  int count = 0;
  for (int other = 0; other < parent->ranks; ++other) {
    const Choice& theirs = choices[static_cast<std::size_t>(other)];
    if (theirs.color != color) continue;
    ++count;
    if (theirs.key < key || (theirs.key == key && other < parent->rank)) ++rank;
  }
  return join(made,
              parent->name + "-" + std::to_string(parent->number) + "c" + std::to_string(color),
              count, rank, parent->device);
}

NCCL int ncclMemAlloc(void** address, std::size_t bytes) {
  const Entry entry;
  std::uint64_t at = 0;
  const auto status = entry.process.memory.alloc(Process::current(), bytes, at);
  *address = reinterpret_cast<void*>(at);
  return status == gapless::DriverStatus::ok ? kSuccess : 1;
}
NCCL int ncclMemFree(void* address) {
  const Entry entry;
  const auto status = entry.process.memory.free(reinterpret_cast<std::uint64_t>(address));
  return status == gapless::DriverStatus::ok ? kSuccess : kInvalidArgument;
}

NCCL int ncclGroupStart() {
  begin_group();
  return kSuccess;
}
NCCL int ncclGroupEnd() { return end_group(); }

NCCL int ncclRedOpCreatePreMulSum(int* reduction, void*, int, int, Communicator*) {
  *reduction = kAverage + 1;  // sums of products: not known afterwards
  return kSuccess;
}
NCCL int ncclRedOpDestroy(int, Communicator*) { return kSuccess; }

// --- collectives ---------------------------------------------------------------------------------

NCCL int ncclBroadcast(const void* source, void* target, std::size_t count, int type, int root,
                       Communicator* communicator, void* stream) {
  const std::size_t bytes = count * type_bytes(type);
  const bool gives = communicator->rank == root;
  return collective(*communicator, {kBroadcast, type, root, 0, count}, gives ? source : target,
                    bytes, stream, [=](const auto& all) {
                      if (gives && source == target) return;
                      const auto from = static_cast<std::size_t>(root);
                      write_known(target, all.empty() ? Contribution{} : all[from], 0, bytes);
                    });
}
NCCL int ncclBcast(void* buffer, std::size_t count, int type, int root, Communicator* communicator,
                   void* stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, communicator, stream);
}
NCCL int ncclAllReduce(const void* source, void* target, std::size_t count, int type, int reduction,
                       Communicator* communicator, void* stream) {
  const std::size_t bytes = count * type_bytes(type);
  return collective(*communicator, {kAllReduce, type, 0, reduction, count}, source, bytes, stream,
                    [=](const auto& all) {
                      write_known(target, reduced(all, type, reduction, count), 0, bytes);
                    });
}
NCCL int ncclReduce(const void* source, void* target, std::size_t count, int type, int reduction,
                    int root, Communicator* communicator, void* stream) {
  const std::size_t bytes = count * type_bytes(type);
  const bool takes = communicator->rank == root;
  return collective(*communicator, {kReduce, type, root, reduction, count}, source, bytes, stream,
                    [=](const auto& all) {
                      if (!takes) return;
                      write_known(target, reduced(all, type, reduction, count), 0, bytes);
                    });
}
NCCL int ncclAllGather(const void* source, void* target, std::size_t count, int type,
                       Communicator* communicator, void* stream) {
  const std::size_t bytes = count * type_bytes(type);
  const auto ranks = static_cast<std::size_t>(communicator->ranks);
  return collective(*communicator, {kAllGather, type, 0, 0, count}, source, bytes, stream,
                    [=](const auto& all) { write_rows(target, all, ranks, 0, bytes); });
}
NCCL int ncclReduceScatter(const void* source, void* target, std::size_t count, int type,
                           int reduction, Communicator* communicator, void* stream) {
  const std::size_t bytes = count * type_bytes(type);
  const auto ranks = static_cast<std::size_t>(communicator->ranks);
  const auto mine = static_cast<std::size_t>(communicator->rank);
  return collective(*communicator, {kReduceScatter, type, 0, reduction, count}, source,
                    bytes * ranks, stream, [=](const auto& all) {
                      write_known(target, reduced(all, type, reduction, count * ranks),
                                  mine * bytes, bytes);
                    });
}
NCCL int ncclAlltoAll(const void* source, void* target, std::size_t count, int type,
                      Communicator* communicator, void* stream) {
  const std::size_t bytes = count * type_bytes(type);
  const auto ranks = static_cast<std::size_t>(communicator->ranks);
  const auto mine = static_cast<std::size_t>(communicator->rank);
  return collective(*communicator, {kAllToAll, type, 0, 0, count}, source, bytes * ranks, stream,
                    [=](const auto& all) { write_rows(target, all, ranks, mine * bytes, bytes); });
}
NCCL int ncclGather(const void* source, void* target, std::size_t count, int type, int root,
                    Communicator* communicator, void* stream) {
  const std::size_t bytes = count * type_bytes(type);
  const auto ranks = static_cast<std::size_t>(communicator->ranks);
  const bool takes = communicator->rank == root;
  return collective(*communicator, {kGather, type, root, 0, count}, source, bytes, stream,
                    [=](const auto& all) {
                      if (takes) write_rows(target, all, ranks, 0, bytes);
                    });
}
NCCL int ncclScatter(const void* source, void* target, std::size_t count, int type, int root,
                     Communicator* communicator, void* stream) {
  const std::size_t bytes = count * type_bytes(type);
  const auto mine = static_cast<std::size_t>(communicator->rank);
  const auto ranks = static_cast<std::size_t>(communicator->ranks);
  const bool gives = communicator->rank == root;
  return collective(*communicator, {kScatter, type, root, 0, count}, gives ? source : nullptr,
                    bytes * ranks, stream, [=](const auto& all) {
                      const auto from = static_cast<std::size_t>(root);
                      write_known(target, all.empty() ? Contribution{} : all[from], mine * bytes,
                                  bytes);
                    });
}

NCCL int ncclSend(const void* source, std::size_t count, int type, int peer,
                  Communicator* communicator, void* stream) {
  return send(*communicator, source, count * type_bytes(type), peer, stream);
}
NCCL int ncclRecv(void* target, std::size_t count, int type, int peer, Communicator* communicator,
                  void* stream) {
  return receive(*communicator, target, count * type_bytes(type), peer, stream);
}
