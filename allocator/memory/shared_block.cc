#include "allocator/memory/shared_block.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/base/bytes.h"

namespace gapless {
namespace {

constexpr std::string_view kMagic = "gapless block 1\n";

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

bool is_whole(const SharedBlock& block, std::uint64_t pages) {
  const bool page_is_good = block.page_bytes != 0 && block.page_bytes <= GiB;
  if (!page_is_good || block.bytes == 0 || block.offset_bytes >= block.page_bytes) return false;
  if (block.bytes > pages * block.page_bytes) return false;
  return pages == div_up(block.offset_bytes + block.bytes, block.page_bytes);
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
        block.page_bytes, block.offset_bytes, block.bytes,
        static_cast<std::uint64_t>(block.pages.size())}) {
    put(message, value);
  }
  for (const SharedHandle& page : block.pages) {
    if (block.type == ShareType::fd) {
      put(message, static_cast<std::uint64_t>(page.fd));
    } else {
      message.append(reinterpret_cast<const char*>(page.fabric.data()), page.fabric.size());
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
  std::uint64_t pages = 0;
  for (std::uint64_t* value :
       {&pid, &type, &read.page_bytes, &read.offset_bytes, &read.bytes, &pages}) {
    if (!take(message, *value)) return fail("the message about a block ends too early");
  }
  const std::uint64_t size = type == 1 ? sizeof(std::uint64_t) : sizeof(SharedHandle::fabric);
  if (type != 1 && type != 2) return fail("the message about a block is of an unknown type");
  if (message.size() / size != pages || message.size() % size != 0 || !is_whole(read, pages)) {
    return fail("the message about a block contradicts itself");
  }
  read.type = static_cast<ShareType>(type);
  Taker taker(static_cast<pid_t>(pid));
  for (std::uint64_t i = 0; i < pages; ++i) {
    SharedHandle handle{.type = read.type};
    if (read.type == ShareType::fabric) {
      take(message, handle.fabric.data(), handle.fabric.size());
    } else {
      std::uint64_t fd = 0;
      take(message, fd);
      handle.fd = taker.take(static_cast<int>(fd));
      if (handle.fd < 0) {
        const std::string cause = taker.why_not();
        close_descriptors(read);
        return fail(cause);
      }
    }
    read.pages.push_back(handle);
  }
  block = std::move(read);
  return true;
}

void close_descriptors(SharedBlock& block) {
  for (SharedHandle& page : block.pages) {
    if (page.fd >= 0) close(page.fd);
    page.fd = -1;
  }
}

DriverStatus ImportedBlock::open(const SharedBlock& block) {
  if (!is_whole(block, block.pages.size())) return DriverStatus::invalid_value;
  DriverStatus status = close();  // what is left of an earlier one
  if (status == DriverStatus::ok) status = map(block);
  open_ = status == DriverStatus::ok;
  if (!open_) (void)close();
  return status;
}

DriverStatus ImportedBlock::map(const SharedBlock& block) {
  const std::uint64_t bytes = block.pages.size() * block.page_bytes;
  offset_bytes_ = block.offset_bytes;
  DriverStatus status = driver_.address_reserve(bytes, 0, base_);
  if (status != DriverStatus::ok) return status;
  reserved_bytes_ = bytes;
  for (const SharedHandle& page : block.pages) {
    MemHandle handle = 0;
    status = driver_.mem_import(device_, page, handle);
    if (status != DriverStatus::ok) return status;
    status = driver_.mem_map(base_ + mapped_bytes_, block.page_bytes, handle);
    // The mapping keeps the memory.
    if (driver_.mem_release(handle) != DriverStatus::ok) held_.push_back(handle);
    if (status != DriverStatus::ok) return status;
    mapped_bytes_ += block.page_bytes;
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
