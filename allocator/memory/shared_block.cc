#include "allocator/memory/shared_block.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/base/bytes.h"

namespace gapless {
namespace {

constexpr std::string_view kAnyMagic = "gapless block ";
constexpr std::string_view kMagic = "gapless block 3\n";

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

// When a process began, in the system's clock ticks: with its number, which is given again when it
// has ended, that names it for ever. 0 where the system does not tell.
std::uint64_t begin_of(pid_t pid) {
  std::array<char, 1024> text{};
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t got = read(file, text.data(), text.size() - 1);
  ::close(file);
  // "4711 (name, with any letters) S 1 ...": the name is field 2, the begin field 22.
  const std::string_view all(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  std::size_t at = all.rfind(')');
  for (int field = 2; field < 22 && at != std::string_view::npos; ++field) {
    at = all.find(' ', at + 1);
  }
  std::uint64_t ticks = 0;
  if (at != std::string_view::npos) {
    (void)std::from_chars(all.data() + at + 1, all.data() + all.size(), ticks);
  }
  return ticks;
}

// Descriptors of another process, one after the other.
class Taker {
 public:
  /// `began`: when the process of that number began, if that is known.
  Taker(pid_t pid, std::uint64_t began) : pid_(pid) {
    if (pid != getpid()) process_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    error_ = errno;
    // Asked when the number can no more become another's.
    const std::uint64_t begins = begin_of(pid);
    is_another_ = began != 0 && begins != 0 && began != begins;
  }
  Taker(const Taker&) = delete;
  Taker& operator=(const Taker&) = delete;
  ~Taker() {
    if (process_ >= 0) close(process_);
  }
  int take(int fd) {
    const bool own = pid_ == getpid();
    if (is_another_ || (!own && process_ < 0)) return -1;
    const int taken = own ? fcntl(fd, F_DUPFD_CLOEXEC, 0)
                          : static_cast<int>(syscall(SYS_pidfd_getfd, process_, fd, 0));
    error_ = errno;
    return taken;
  }
  [[nodiscard]] std::string why_not() const {
    std::string text = "the memory of process " + std::to_string(pid_) + " cannot be had: ";
    if (is_another_) {
      return text +
             "it has ended, and another process has that number now (or numbers mean others here: "
             "in a container that counts its own processes)";
    }
    if (error_ == ESRCH) return text + "it has ended";
    text += std::strerror(error_);
    if (error_ == EPERM) {
      text +=
          "; the system lets a process take descriptors only of those it may trace: in a"
          " container add the capability SYS_PTRACE, or set share:fabric in the owner";
    }
    if (error_ == EMFILE) text += "; raise the limit (ulimit -n), or page_size in the owner";
    return text;
  }

 private:
  pid_t pid_;
  int process_ = -1;
  int error_ = 0;
  bool is_another_ = false;
};

}  // namespace

std::string to_message(const SharedBlock& block) {
  std::string message(kMagic);
  for (const std::uint64_t value : {static_cast<std::uint64_t>(getpid()), begin_of(getpid()),
                                    static_cast<std::uint64_t>(block.type), block.offset_bytes,
                                    block.bytes, static_cast<std::uint64_t>(block.pieces.size())}) {
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
  if (!message.starts_with(kAnyMagic)) return fail("this is no message about a block of gapless");
  if (!message.starts_with(kMagic)) {
    return fail("the message about a block is another version's of gapless");
  }
  message.remove_prefix(kMagic.size());
  SharedBlock read;
  std::uint64_t pid = 0;
  std::uint64_t began = 0;
  std::uint64_t type = 0;
  std::uint64_t pieces = 0;
  for (std::uint64_t* value : {&pid, &began, &type, &read.offset_bytes, &read.bytes, &pieces}) {
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
  Taker taker(static_cast<pid_t>(pid), began);
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
