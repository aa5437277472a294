#include "simgpu/front/nccl/communicator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>

#include "simgpu/process/library_handle.h"
#include "simgpu/process/ranks.h"
#include "simgpu/process/too_few_gpus.h"

namespace gapless::simgpu::nccl {
namespace {

using Clock = std::chrono::steady_clock;

// How long a rank waits for the others: SIMGPU_WAIT seconds. Real collectives wait for ever.
std::chrono::seconds patience() {
  const char* text = std::getenv("SIMGPU_WAIT");
  const int seconds = text == nullptr ? 0 : std::atoi(text);
  return std::chrono::seconds(seconds > 0 ? seconds : 60);
}

struct Group {
  int depth = 0;
  std::deque<Operation> operations;
};

Group& group() {
  thread_local Group mine;
  return mine;
}

const char* name_of(int operation) {
  static const char* const names[] = {"broadcast",  "all-reduce",     "reduce",
                                      "all-gather", "reduce-scatter", "all-to-all",
                                      "gather",     "scatter",        "split"};
  return operation >= 0 && operation < 9 ? names[operation] : "?";
}

// The thread's.
std::string& error_text() {
  thread_local std::string text;
  return text;
}

// Whether all others that have come to this collective do the same.
bool agrees(const Communicator& communicator, std::uint64_t number, const Signature& mine) {
  if (communicator.shares_its_gpu()) return false;
  for (int other = 0; other < communicator.ranks; ++other) {
    Check& check = communicator.meeting->check(other, number);
    if (check.number.load(std::memory_order_acquire) != number) continue;
    const Signature theirs = check.signature;
    if (check.number.load(std::memory_order_acquire) != number || theirs == mine) continue;
    std::fprintf(stderr,
                 "simgpu: NCCL: ranks do different things in collective %llu: rank %d %s of %llu "
                 "(type %d, root %d), rank %d %s of %llu (type %d, root %d)\n",
                 static_cast<unsigned long long>(number), communicator.rank,
                 name_of(mine.operation), static_cast<unsigned long long>(mine.count), mine.type,
                 mine.root, other, name_of(theirs.operation),
                 static_cast<unsigned long long>(theirs.count), theirs.type, theirs.root);
    return false;
  }
  return true;
}

void say_alone(Communicator& communicator) {
  if (!communicator.alone) {
    std::fprintf(stderr,
                 "simgpu: NCCL: rank %d of %d waited for others that did not come; it goes on with "
                 "its own data\n",
                 communicator.rank, communicator.ranks);
  }
  communicator.alone = true;
}

bool captures(void* handle) {
  const Entry entry;
  const Stream* stream = entry.process.streams.find(handle, Process::current());
  return stream != nullptr && stream->capture != nullptr;
}

// Advances everything until it is done; a collective only when those before it are.
int run(std::deque<Operation> operations) {
  const auto end = Clock::now() + patience();
  int result = kSuccess;
  for (unsigned idle = 0; !operations.empty();) {
    bool moved = false;
    std::vector<const Communicator*> blocked;
    for (auto operation = operations.begin(); operation != operations.end();) {
      const auto before = std::find(blocked.begin(), blocked.end(), operation->communicator);
      Progress progress = Progress::waiting;
      if (!operation->collective || before == blocked.end()) progress = operation->advance();
      if (progress == Progress::waiting && (operation->communicator->alone || Clock::now() > end)) {
        say_alone(*operation->communicator);
        operation->give_up();
        progress = Progress::done;
      }
      if (progress == Progress::waiting) {
        if (operation->collective) blocked.push_back(operation->communicator);
        ++operation;
        continue;
      }
      if (progress == Progress::refused) result = kInvalidUsage;
      operation = operations.erase(operation);
      moved = true;
    }
    idle = moved ? 0 : idle + 1;
    if (idle > 1000) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return result;
}

}  // namespace

const std::string& last_error() { return error_text(); }

Communicator* Communicator::join(const std::string& name, int ranks, int rank, int device) {
  auto made = std::make_unique<Communicator>();
  made->name = name;
  made->ranks = ranks;
  made->rank = rank;
  made->device = device;
  made->sent.resize(static_cast<std::size_t>(ranks), 0);
  made->received.resize(static_cast<std::size_t>(ranks), 0);
  made->absent.resize(static_cast<std::size_t>(ranks), false);
  if (ranks > 1) {
    const Entry entry;
    made->meeting =
        std::make_unique<Meeting>(name, ranks, rank, entry.process.installed_index(device));
  }
  const Ranks& run = ranks_from_environment();
  if (run.all() || ranks == 1) return made.release();
  // Who is who is known where all ranks meet, or only one runs; else where all that run have come.
  // In other groups who does not come is waited for as anybody is.
  made->alone = run.count() == 1;
  if (ranks == rank_variable("WORLD_SIZE")) {
    for (int other = 0; other < ranks; ++other) {
      made->absent[static_cast<std::size_t>(other)] = !run.run(other);
    }
  }
  return made.release();
}

bool Communicator::shares_its_gpu() const {
  const int other = meeting == nullptr ? -1 : meeting->rank_on_same_gpu();
  if (other < 0) return false;
  const Entry entry;
  const int gpu = entry.process.installed_index(device);
  note_shared_gpu(gpu, rank, other, ranks, entry.process.config());
  error_text() = "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
                 std::to_string(other) + " both on GPU " + std::to_string(gpu);
  std::fprintf(stderr, "simgpu: NCCL: %s\n", last_error().c_str());
  return true;
}

int Communicator::first_present() const {
  const auto found = std::find(absent.begin(), absent.end(), false);
  return found == absent.end() ? rank : static_cast<int>(found - absent.begin());
}

void Communicator::note_absent() {
  const Ranks& run = ranks_from_environment();
  if (run.all() || meeting == nullptr) return;
  if (static_cast<std::size_t>(meeting->joined()) != run.count()) return;
  for (int other = 0; other < ranks; ++other) {
    absent[static_cast<std::size_t>(other)] = !meeting->came(other);
  }
}

void Communicator::all_here() {
  alone = false;
  absent.assign(absent.size(), false);
}

void begin_group() { ++group().depth; }

int end_group() {
  Group& mine = group();
  if (mine.depth == 0) return kInvalidUsage;
  if (--mine.depth > 0) return kSuccess;
  std::deque<Operation> operations;
  operations.swap(mine.operations);
  return run(std::move(operations));
}

int submit(Operation operation) {
  if (group().depth > 0) {
    group().operations.push_back(std::move(operation));
    return kSuccess;
  }
  return complete(std::move(operation));
}

int complete(Operation operation) {
  std::deque<Operation> one;
  one.push_back(std::move(operation));
  return run(std::move(one));
}

// --- what is known of device memory --------------------------------------------------------------

Contribution read_known(const void* source, std::size_t bytes) {
  Contribution contribution;
  if (source == nullptr || bytes == 0) return contribution;
  const Entry entry;
  const DeviceMemory& memory = entry.process.memory;
  const auto address = reinterpret_cast<std::uint64_t>(source);
  if (!memory.knows(address, bytes)) {
    if (!memory.knows_any_of(address, bytes)) return contribution;
    contribution.places.resize(bytes);
    memory.flag_known(address, 1, bytes, Knowledge::known, contribution.places.data());
    if (std::count(contribution.places.begin(), contribution.places.end(), 1) == 0) return {};
  }
  contribution.data.resize(bytes);
  contribution.known = memory.read(contribution.data.data(), address, bytes);
  return contribution;
}

void write_known(void* target, const Contribution& contribution, std::size_t offset,
                 std::size_t bytes) {
  if (target == nullptr || bytes == 0) return;
  const bool is_known = contribution.known && offset + bytes <= contribution.data.size();
  if (!is_known || !contribution.places.empty()) forget(target, bytes);
  if (!is_known) return;
  const Entry entry;
  const auto write = [&](std::size_t from, std::size_t count) {
    entry.process.memory.write(reinterpret_cast<std::uint64_t>(target) + from,
                               contribution.data.data() + offset + from, count);
  };
  if (contribution.places.empty()) return write(0, bytes);
  const auto begin = contribution.places.begin() + static_cast<std::ptrdiff_t>(offset);
  const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
  for (auto at = std::find(begin, end, 1); at != end;) {
    const auto to = std::find(at, end, 0);
    write(static_cast<std::size_t>(at - begin), static_cast<std::size_t>(to - at));
    at = std::find(to, end, 1);
  }
}

void forget(void* target, std::size_t bytes) {
  const Entry entry;
  entry.process.memory.forget(reinterpret_cast<std::uint64_t>(target), bytes);
}

namespace {

void tell(Told& told, const Contribution& mine) {
  told.known = mine.known;
  told.in_part = !mine.places.empty();
  std::copy(mine.data.begin(), mine.data.end(), told.data);
  std::copy(mine.places.begin(), mine.places.end(), told.places);
}

Contribution told_by(const Told& told, std::size_t bytes) {
  Contribution theirs;
  theirs.known = told.known;
  if (!told.known) return theirs;
  theirs.data.assign(told.data, told.data + bytes);
  if (told.in_part) theirs.places.assign(told.places, told.places + bytes);
  return theirs;
}

}  // namespace

// --- operations ----------------------------------------------------------------------------------

int collective(Communicator& communicator, const Signature& signature, const void* source,
               std::size_t bytes, void* stream,
               const std::function<void(const std::vector<Contribution>&)>& then) {
  submit_library_work(stream);
  if (captures(stream)) return kSuccess;
  const auto replicate = [&communicator, source, bytes, then] {
    if (communicator.ranks > 1 && bytes > kMessageBytes) {
      then({});
      return;
    }
    const Contribution mine = read_known(source, bytes);
    then(std::vector<Contribution>(static_cast<std::size_t>(communicator.ranks), mine));
  };
  Operation operation{&communicator, true, {}, replicate};
  if (communicator.ranks == 1 || communicator.alone) {
    operation.advance = [replicate] {
      replicate();
      return Progress::done;
    };
    return submit(std::move(operation));
  }
  operation.advance = [&communicator, signature, source, bytes, then, number = std::uint64_t{0},
                       turn = std::uint64_t{0}]() mutable {
    Meeting& meeting = *communicator.meeting;
    const int rank = communicator.rank;
    const bool large = bytes > kMessageBytes;
    if (number == 0) {
      number = ++communicator.number;
      Check& check = meeting.check(rank, number);
      check.number.store(0, std::memory_order_release);
      check.signature = signature;
      check.number.store(number, std::memory_order_release);
      if (!large) {
        turn = ++communicator.turn;
        Message& message = meeting.message(rank, turn);
        tell(message.told, read_known(source, bytes));
        message.turn.store(turn, std::memory_order_release);
      }
    }
    if (!agrees(communicator, number, signature)) return Progress::refused;
    if (large) {
      then({});
      return Progress::done;
    }
    for (int other = 0; other < communicator.ranks; ++other) {
      if (communicator.absent[static_cast<std::size_t>(other)]) continue;
      // Who has passed this turn has left its message, for two turns' messages are kept.
      if (meeting.message(other, turn).turn.load(std::memory_order_acquire) == turn) continue;
      communicator.note_absent();
      if (meeting.ended(other)) say_alone(communicator);
      return Progress::waiting;
    }
    std::vector<Contribution> all(static_cast<std::size_t>(communicator.ranks));
    for (int other = 0; other < communicator.ranks; ++other) {
      const bool came = !communicator.absent[static_cast<std::size_t>(other)];
      const Message& message = meeting.message(came ? other : communicator.first_present(), turn);
      all[static_cast<std::size_t>(other)] = told_by(message.told, bytes);
    }
    then(all);
    return Progress::done;
  };
  return submit(std::move(operation));
}

int send(Communicator& communicator, const void* source, std::size_t bytes, int peer,
         void* stream) {
  if (peer < 0 || peer >= communicator.ranks) return kInvalidArgument;
  submit_library_work(stream);
  if (captures(stream) || communicator.meeting == nullptr) return kSuccess;
  if (communicator.absent[static_cast<std::size_t>(peer)]) return kSuccess;
  const std::uint64_t number = communicator.sent[static_cast<std::size_t>(peer)]++;
  Operation operation{&communicator, false, {}, [] {}};
  operation.advance = [&communicator, source, bytes, peer, number] {
    Meeting::Letter& letter = communicator.meeting->letter(communicator.rank, peer, number);
    if (letter.full.load(std::memory_order_acquire) != 0) {
      if (communicator.meeting->ended(peer)) say_alone(communicator);
      return Progress::waiting;
    }
    const bool small = bytes <= kMessageBytes;
    tell(letter.told, small ? read_known(source, bytes) : Contribution{});
    letter.bytes = bytes;
    letter.full.store(1, std::memory_order_release);
    return Progress::done;
  };
  return submit(std::move(operation));
}

int receive(Communicator& communicator, void* target, std::size_t bytes, int peer, void* stream) {
  if (peer < 0 || peer >= communicator.ranks) return kInvalidArgument;
  submit_library_work(stream);
  if (captures(stream) || communicator.meeting == nullptr) return kSuccess;
  if (communicator.absent[static_cast<std::size_t>(peer)]) {
    forget(target, bytes);
    return kSuccess;
  }
  const std::uint64_t number = communicator.received[static_cast<std::size_t>(peer)]++;
  Operation operation{&communicator, false, {}, [target, bytes] { forget(target, bytes); }};
  operation.advance = [&communicator, target, bytes, peer, number] {
    Meeting::Letter& letter = communicator.meeting->letter(peer, communicator.rank, number);
    if (letter.full.load(std::memory_order_acquire) == 0) {
      if (communicator.meeting->ended(peer)) say_alone(communicator);
      return Progress::waiting;
    }
    const bool fits = letter.bytes == bytes;
    if (!fits) {
      std::fprintf(stderr,
                   "simgpu: NCCL: rank %d receives %zu bytes from rank %d, which sent %zu\n",
                   communicator.rank, bytes, peer, static_cast<std::size_t>(letter.bytes));
    }
    const Contribution theirs =
        fits && bytes <= kMessageBytes ? told_by(letter.told, bytes) : Contribution{};
    letter.full.store(0, std::memory_order_release);
    write_known(target, theirs, 0, bytes);
    return fits ? Progress::done : Progress::refused;
  };
  return submit(std::move(operation));
}

}  // namespace gapless::simgpu::nccl
