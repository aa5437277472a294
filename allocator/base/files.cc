#include "allocator/base/files.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/error.h"

namespace gapless {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, int error) {
  throw InputError(path + ": " + std::strerror(error));
}

// An open file, closed with it.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] bool is_open() const { return number_ >= 0; }
  /// Some file systems tell only now that there was no room. False: errno says why.
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

// False where not all could be written: errno says why.
bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(file, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return true;
}

// 0 where all that is produced could be written, else why not; what comes then is not written.
int write_produced(int file, const ProduceBytes& produce) {
  int error = 0;
  produce([&](std::string_view bytes) {
    if (error == 0 && !write_all(file, bytes)) error = errno;
  });
  return error;
}

void write_in_place(const std::string& path, int file, const ProduceBytes& produce) {
  if (const int error = write_produced(file, produce); error != 0) fail(path, error);
}

// A file that did not exist before, in that folder; `name` becomes its name.
int make_new_file(const fs::path& folder, mode_t mode, fs::path& name) {
  std::random_device random;
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    char word[40];
    std::snprintf(word, sizeof word, ".gapless-%08x%08x", random(), random());
    name = folder / word;
    const int file =
        ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

fs::path folder_of(const fs::path& target) {
  return target.has_parent_path() ? target.parent_path() : fs::path(".");
}

// Replaces a regular file or makes a new one. `old` is what is there; null: nothing.
void replace(const std::string& path, const fs::path& target, const struct stat* old,
             const ProduceBytes& produce) {
  const fs::path folder = folder_of(target);
  constexpr mode_t kAnyone = 0666;  // less the umask
  constexpr mode_t kPermissions = 0777;
  fs::path part;
  Descriptor file(make_new_file(folder, old == nullptr ? kAnyone : S_IRUSR | S_IWUSR, part));
  if (!file.is_open()) {
    const int error = errno;
    throw InputError(path + ": no file can be made in its folder: " + std::strerror(error));
  }
  const auto give_up = [&](int error) {
    ::unlink(part.c_str());
    fail(path, error);
  };
  try {
    if (const int error = write_produced(file.number(), produce); error != 0) give_up(error);
  } catch (...) {
    ::unlink(part.c_str());
    throw;
  }
  if (old != nullptr) {
    // Another's file stays that user's where we may say so; else the new one is ours.
    (void)!::fchown(file.number(), old->st_uid, old->st_gid);
    if (::fchmod(file.number(), old->st_mode & kPermissions) != 0) give_up(errno);
  }
  if (!file.close()) give_up(errno);
  if (::rename(part.c_str(), target.c_str()) != 0) give_up(errno);
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

std::string read_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (!file.is_open() || ::fstat(file.number(), &facts) != 0) fail(path, errno);
  if (S_ISDIR(facts.st_mode)) throw InputError(path + ": is a folder");
  if (S_ISBLK(facts.st_mode) || S_ISCHR(facts.st_mode)) throw InputError(path + ": is a device");
  std::string bytes;
  std::size_t got = 0;
  const auto expected = static_cast<std::size_t>(facts.st_size);  // 0 of a pipe
  while (true) {
    constexpr std::size_t kChunk = 1 << 16;
    if (got == bytes.size()) {
      bytes.resize(got < expected ? expected + 1 : got + std::max(got / 2, kChunk));
    }
    const ssize_t more = ::read(file.number(), bytes.data() + got, bytes.size() - got);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) fail(path, errno);
    if (more == 0) break;
    got += static_cast<std::size_t>(more);
  }
  bytes.resize(got);
  return bytes;
}

bool is_standard_output(const std::string& path) {
  struct stat facts {};
  struct stat output {};
  return ::stat(path.c_str(), &facts) == 0 && ::fstat(STDOUT_FILENO, &output) == 0 &&
         same_file(facts, output);
}

std::string cannot_write(const std::string& path) {
  const auto access_to = [](const fs::path& what) -> std::string {
    const int no = ::faccessat(AT_FDCWD, what.c_str(), W_OK, AT_EACCESS);
    return no == 0 ? "" : std::strerror(errno);
  };
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    const int error = errno;
    struct stat link {};
    const bool is_link = ::lstat(path.c_str(), &link) == 0;
    return error != ENOENT || is_link ? std::strerror(error) : access_to(folder_of(path));
  }
  if (S_ISDIR(facts.st_mode)) return std::strerror(EISDIR);
  if (std::string cause = access_to(path); !cause.empty()) return cause;
  if (!S_ISREG(facts.st_mode) || is_standard_output(path)) return "";
  std::error_code code;
  const fs::path target = fs::canonical(path, code);
  return code ? code.message() : access_to(folder_of(target));
}

void write_file(const std::string& path, std::string_view bytes) {
  write_file(path, [bytes](const WriteBytes& write) { write(bytes); });
}

void write_file(const std::string& path, const ProduceBytes& produce) {
  struct stat old {};
  if (::stat(path.c_str(), &old) != 0) {
    const int error = errno;
    struct stat link {};
    if (::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) {
      throw InputError(path + ": is a link to what cannot be found: " + std::strerror(error));
    }
    if (error != ENOENT) fail(path, error);
    replace(path, path, nullptr, produce);
    return;
  }
  if (S_ISDIR(old.st_mode)) throw InputError(path + ": is a folder");
  if (is_standard_output(path)) {  // also where that is a regular file, which others write to too
    write_in_place(path, STDOUT_FILENO, produce);
    return;
  }
  // Opened for writing even where it will be replaced: the system says whether we may, and whether
  // a link may be followed.
  const Descriptor present(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!present.is_open() || ::fstat(present.number(), &old) != 0) fail(path, errno);
  if (!S_ISREG(old.st_mode)) {
    write_in_place(path, present.number(), produce);
    return;
  }
  std::error_code code;
  const fs::path target = fs::canonical(path, code);
  if (code) fail(path, code.value());
  replace(path, target, &old, produce);
}

}  // namespace gapless
