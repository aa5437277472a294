#include "allocator/base/byte_source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/files.h"

namespace gapless {
namespace {

class BytesInMemory final : public ByteSource {
 public:
  explicit BytesInMemory(std::string bytes) : bytes_(std::move(bytes)) {}

  [[nodiscard]] std::uint64_t size() const override { return bytes_.size(); }
  [[nodiscard]] std::uint64_t held_bytes() const override { return bytes_.size(); }
  std::string_view next() override {
    return std::exchange(given_, true) ? std::string_view() : std::string_view(bytes_);
  }
  void rewind() override { given_ = false; }
  std::string take_all() override { return std::move(bytes_); }
  void check_unchanged() const override {}

 private:
  std::string bytes_;
  bool given_ = false;
};

// A regular file, which it closes.
class BytesOfFile final : public ByteSource {
 public:
  BytesOfFile(std::string path, int file, const struct stat& facts)
      : path_(std::move(path)), file_(file), facts_(facts), piece_(kPieceBytes) {}
  BytesOfFile(const BytesOfFile&) = delete;
  BytesOfFile& operator=(const BytesOfFile&) = delete;
  ~BytesOfFile() override { ::close(file_); }

  [[nodiscard]] std::uint64_t size() const override {
    return static_cast<std::uint64_t>(facts_.st_size);
  }
  [[nodiscard]] std::uint64_t held_bytes() const override { return piece_.size(); }

  std::string_view next() override {
    const std::uint64_t wanted = std::min<std::uint64_t>(piece_.size(), size() - at_);
    std::uint64_t got = 0;
    while (got < wanted) {
      const ssize_t more =
          ::pread(file_, piece_.data() + got, wanted - got, static_cast<off_t>(at_ + got));
      if (more < 0 && errno == EINTR) continue;
      if (more < 0) throw InputError(path_ + ": " + std::strerror(errno));
      if (more == 0) changed();
      got += static_cast<std::uint64_t>(more);
    }
    at_ += got;
    return {piece_.data(), got};
  }

  void rewind() override { at_ = 0; }
  std::string take_all() override { return read_file(path_); }

  void check_unchanged() const override {
    struct stat now {};
    const auto same = [](const timespec& a, const timespec& b) {
      return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
    };
    if (::fstat(file_, &now) != 0 || now.st_size != facts_.st_size ||
        !same(now.st_mtim, facts_.st_mtim)) {
      changed();
    }
  }

 private:
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

  [[noreturn]] void changed() const {
    throw InputError(path_ + ": the file changed while it was read");
  }

  std::string path_;
  int file_;
  struct stat facts_;
  std::vector<char> piece_;
  std::uint64_t at_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> bytes_in_memory(std::string bytes) {
  return std::make_unique<BytesInMemory>(std::move(bytes));
}

std::unique_ptr<ByteSource> open_bytes(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode)) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0 || ::fstat(file, &facts) != 0) {
      const int error = errno;
      if (file >= 0) ::close(file);
      throw InputError(path + ": " + std::strerror(error));
    }
    // What says that it is empty may be made while it is read (/proc).
    if (S_ISREG(facts.st_mode) && facts.st_size > 0) {
      return std::make_unique<BytesOfFile>(path, file, facts);
    }
    ::close(file);
  }
  return bytes_in_memory(read_file(path));
}

}  // namespace gapless
