#include "allocator/base/byte_source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <system_error>
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

// A regular file, which it closes. While a piece of a large one is looked at, a thread reads the
// next.
class BytesOfFile final : public ByteSource {
 public:
  BytesOfFile(std::string path, int file, const struct stat& facts)
      : path_(std::move(path)), file_(file), facts_(facts) {}
  BytesOfFile(const BytesOfFile&) = delete;
  BytesOfFile& operator=(const BytesOfFile&) = delete;
  ~BytesOfFile() override {
    forget_ahead();
    ::close(file_);
  }

  [[nodiscard]] std::uint64_t size() const override {
    return static_cast<std::uint64_t>(facts_.st_size);
  }
  [[nodiscard]] std::uint64_t held_bytes() const override {
    return std::min<std::uint64_t>(2 * kPieceBytes, size());
  }

  std::string_view next() override {
    if (!ahead_.valid()) read_ahead(std::launch::deferred);
    ahead_.get();
    std::swap(piece_, next_piece_);
    at_ += piece_.size();
    if (at_ < size()) read_ahead(std::launch::async);
    return {piece_.data(), piece_.size()};
  }

  void rewind() override {
    forget_ahead();
    at_ = 0;
  }
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
  // Making a thread for each takes little of the time that its piece does.
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

  void read_ahead(std::launch how) {
    try {
      ahead_ = std::async(how, [this] { read(next_piece_); });
    } catch (const std::system_error&) {  // no more threads
      ahead_ = std::async(std::launch::deferred, [this] { read(next_piece_); });
    }
  }

  void forget_ahead() {
    if (ahead_.valid()) ahead_.wait();
    ahead_ = {};
  }

  // What comes after the piece that was given last. Throws InputError.
  void read(std::vector<char>& piece) const {
    piece.resize(std::min<std::uint64_t>(kPieceBytes, size() - at_));
    std::uint64_t got = 0;
    while (got < piece.size()) {
      const ssize_t more =
          ::pread(file_, piece.data() + got, piece.size() - got, static_cast<off_t>(at_ + got));
      if (more < 0 && errno == EINTR) continue;
      if (more < 0) throw InputError(path_ + ": " + std::strerror(errno));
      if (more == 0) changed();
      got += static_cast<std::uint64_t>(more);
    }
  }

  [[noreturn]] void changed() const {
    throw InputError(path_ + ": the file changed while it was read");
  }

  std::string path_;
  int file_;
  struct stat facts_;
  std::vector<char> piece_;       // that was given last
  std::vector<char> next_piece_;  // which ahead_ reads
  std::future<void> ahead_;
  std::uint64_t at_ = 0;  // where the next piece begins
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
