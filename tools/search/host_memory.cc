#include "tools/search/host_memory.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <optional>

#include "allocator/base/bytes.h"
#include "allocator/base/text_of_file.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> number_at(const std::string& text, std::size_t begin) {
  begin = text.find_first_not_of(" \t", begin);
  if (begin == std::string::npos) return {};
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  (void)end;
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// "MemAvailable:   12 kB" in bytes; 0 where there is no such line.
std::uint64_t kilobytes(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name);
  return at == std::string::npos ? 0 : number_at(text, at + name.size()).value_or(0) * KiB;
}

}  // namespace

std::uint64_t available_host_bytes() {
  std::uint64_t available = kilobytes(text_of_file("/proc/meminfo"), "MemAvailable:");
  // Version 2 of control groups: "0::/path", where a container mostly sees its own as the root.
  const std::string groups = text_of_file("/proc/self/cgroup");
  const std::size_t at = groups.find("0::/");
  const std::string own =
      at == std::string::npos ? "" : groups.substr(at + 4, groups.find('\n', at) - at - 4);
  for (const fs::path& folder : {fs::path("/sys/fs/cgroup"), fs::path("/sys/fs/cgroup") / own}) {
    const auto most = number_at(text_of_file(folder / "memory.max"), 0);  // or "max"
    const auto used = number_at(text_of_file(folder / "memory.current"), 0);
    if (most && used) available = std::min(available, *most - std::min(*most, *used));
  }
  return available;
}

std::vector<pid_t> processes_with(const std::string& variable) {
  std::vector<pid_t> processes;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/proc", none)) {
    const std::string name = entry.path().filename().string();
    const auto pid = number_at(name, 0);
    if (!pid || name.find_first_not_of("0123456789") != std::string::npos) continue;
    // Each variable ends with a zero.
    const std::string environment = '\0' + text_of_file(entry.path() / "environ");
    if (environment.find('\0' + variable + '\0') != std::string::npos) {
      processes.push_back(static_cast<pid_t>(*pid));
    }
  }
  return processes;
}

std::uint64_t host_bytes_of(pid_t process) {
  const std::string status = text_of_file("/proc/" + std::to_string(process) + "/status");
  return kilobytes(status, "\nRssAnon:") + kilobytes(status, "\nRssShmem:");
}

}  // namespace gapless::tools
