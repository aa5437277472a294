#include "allocator/memory/shared_block.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/base/bytes.h"

namespace gapless {
namespace {

constexpr std::string_view kMagic = "gapless block 2\n";

void put(std::string& message, std::uint64_t value) {
  message.append(reinterpret_cast<const char*>(&value), sizeof value);
}

bool take(std::string_view& message, void* target, std::size_t bytes) {
  if (message.size() < bytes) return false;
  std::memcpy(target, message.data(), bytes);
  message.remove_prefix(bytes);
  return true;
}

bool take(std::string_view& message, std::uint64_t& value) {
  return take(message, &value, sizeof value);
}

std::uint64_t total_bytes(const SharedBlock& block) {
  std::uint64_t bytes = 0;
  for (const SharedPiece& piece : block.pieces) bytes += piece.bytes;
  return bytes;
}

// The block lies in all of its pieces, and nowhere else.
bool is_whole(const SharedBlock& block) {
  const auto is_good = [](const SharedPiece& piece) {
    return piece.bytes != 0 && piece.bytes <= 2 * GiB;
  };
  if (block.pieces.empty() || block.bytes == 0 ||
      !std::all_of(block.pieces.begin(), block.pieces.end(), is_good)) {
    return false;
  }
  const std::uint64_t total = total_bytes(block);
  if (block.bytes > total || block.offset_bytes >= block.pieces.front().bytes) return false;
  const std::uint64_t end = block.offset_bytes + block.bytes;
  return end <= total && end > total - block.pieces.back().bytes;
}

// Descriptors of another process, one after the other.
class Taker {
 public:
  explicit Taker(pid_t pid) : pid_(pid) {
    if (pid != getpid()) process_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  }
  Taker(const Taker&) = delete;
  Taker& operator=(const Taker&) = delete;
  ~Taker() {
    if (process_ >= 0) close(process_);
  }
  int take(int fd) {
    if (pid_ == getpid()) return fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (process_ < 0) return -1;
    return static_cast<int>(syscall(SYS_pidfd_getfd, process_, fd, 0));
  }
  [[nodiscard]] std::string why_not() const {
    const std::string of = " of process " + std::to_string(pid_);
    if (errno == ESRCH) return "the memory" + of + " cannot be had: it has ended";
    std::string text = "the memory" + of + " cannot be had: " + std::strerror(errno);
    if (errno == EPERM) {
      text +=
          "; the system lets a process take descriptors only of those it may trace: in a"
          " container add the capability SYS_PTRACE, or set share:fabric in the owner";
    }
    if (errno == EMFILE) text += "; raise the limit (ulimit -n), or page_size in the owner";
    return text;
  }

 private:
  pid_t pid_;
  int process_ = -1;
};

}  // namespace

std::string to_message(const SharedBlock& block) {
  std::string message(kMagic);
  for (const std::uint64_t value :
       {static_cast<std::uint64_t>(getpid()), static_cast<std::uint64_t>(block.type),
        block.offset_bytes, block.bytes, static_cast<std::uint64_t>(block.pieces.size())}) {
    put(message, value);
  }
  for (const auto& [handle, bytes] : block.pieces) {
    put(message, bytes);
    if (block.type == ShareType::fd) {
      put(message, static_cast<std::uint64_t>(handle.fd));
    } else {
      message.append(reinterpret_cast<const char*>(handle.fabric.data()), handle.fabric.size());
    }
  }
  return message;
}

bool from_message(std::string_view message, SharedBlock& block, std::string& error) {
  const auto fail = [&](const std::string& cause) {
    error = cause;
    return false;
  };
  if (!message.starts_with(kMagic)) return fail("this is no message about a block of gapless");
  message.remove_prefix(kMagic.size());
  SharedBlock read;
  std::uint64_t pid = 0;
  std::uint64_t type = 0;
  std::uint64_t pieces = 0;
  for (std::uint64_t* value : {&pid, &type, &read.offset_bytes, &read.bytes, &pieces}) {
    if (!take(message, *value)) return fail("the message about a block ends too early");
  }
  if (type != 1 && type != 2) return fail("the message about a block is of an unknown type");
  read.type = static_cast<ShareType>(type);
  const std::uint64_t size =
      sizeof(std::uint64_t) +
      (read.type == ShareType::fd ? sizeof(std::uint64_t) : sizeof(SharedHandle::fabric));
  constexpr const char* kContradiction = "the message about a block contradicts itself";
  if (message.size() / size != pieces || message.size() % size != 0) return fail(kContradiction);
  std::vector<int> theirs;
  for (std::uint64_t i = 0; i < pieces; ++i) {
    SharedPiece piece{{.type = read.type}};
    take(message, piece.bytes);
    if (read.type == ShareType::fabric) {
      take(message, piece.handle.fabric.data(), piece.handle.fabric.size());
    } else {
      std::uint64_t fd = 0;
      take(message, fd);
      theirs.push_back(static_cast<int>(fd));
    }
    read.pieces.push_back(piece);
  }
  if (!is_whole(read)) return fail(kContradiction);
  Taker taker(static_cast<pid_t>(pid));
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    read.pieces[i].handle.fd = taker.take(theirs[i]);
    if (read.pieces[i].handle.fd >= 0) continue;
    const std::string cause = taker.why_not();
    close_descriptors(read);
    return fail(cause);
  }
  block = std::move(read);
  return true;
}

void close_descriptors(SharedBlock& block) {
  for (auto& [handle, bytes] : block.pieces) {
    if (handle.fd >= 0) close(handle.fd);
    handle.fd = -1;
  }
}

DriverStatus ImportedBlock::open(const SharedBlock& block) {
  if (!is_whole(block)) return DriverStatus::invalid_value;
  DriverStatus status = close();  // what is left of an earlier one
  if (status == DriverStatus::ok) status = map(block);
  open_ = status == DriverStatus::ok;
  if (!open_) (void)close();
  return status;
}

DriverStatus ImportedBlock::map(const SharedBlock& block) {
  const std::uint64_t bytes = total_bytes(block);
  offset_bytes_ = block.offset_bytes;
  DriverStatus status = driver_.address_reserve(bytes, 0, base_);
  if (status != DriverStatus::ok) return status;
  reserved_bytes_ = bytes;
  for (const SharedPiece& piece : block.pieces) {
    MemHandle handle = 0;
    status = driver_.mem_import(device_, piece.handle, handle);
    if (status != DriverStatus::ok) return status;
    status = driver_.mem_map(base_ + mapped_bytes_, piece.bytes, handle);
    // The mapping keeps the memory.
    if (driver_.mem_release(handle) != DriverStatus::ok) held_.push_back(handle);
    if (status != DriverStatus::ok) return status;
    mapped_bytes_ += piece.bytes;
  }
  return driver_.mem_set_access(base_, bytes, device_);
}

DriverStatus ImportedBlock::close() {
  DriverStatus status = open_ ? driver_.device_synchronize(device_) : DriverStatus::ok;
  if (status != DriverStatus::ok) return status;
  open_ = false;
  while (!held_.empty()) {
    status = driver_.mem_release(held_.back());
    if (status != DriverStatus::ok) return status;
    held_.pop_back();
  }
  if (mapped_bytes_ != 0) status = driver_.mem_unmap(base_, mapped_bytes_);
  if (status != DriverStatus::ok) return status;
  mapped_bytes_ = 0;
  if (reserved_bytes_ != 0) status = driver_.address_free(base_, reserved_bytes_);
  if (status == DriverStatus::ok) reserved_bytes_ = 0;
  return status;
}

}  // namespace gapless
