#include "allocator/report/oom_dump.h"

#include <exception>
#include <filesystem>
#include <map>
#include <mutex>

#include <unistd.h>

#include "allocator/base/files.h"
#include "allocator/report/dump.h"

namespace gapless {
namespace {

// The number of the next dump of this device in this process, from 1; 0 where enough were written.
// A forked child has numbers of its own, since its files have another name.
int next_number(DeviceIndex device) {
  static std::mutex mutex;
  static std::map<std::pair<pid_t, DeviceIndex>, int> written;
  const std::scoped_lock lock(mutex);
  int& number = written[{getpid(), device}];
  return number == kMostOomDumps ? 0 : ++number;
}

}  // namespace

std::string write_oom_dump(const std::string& folder, const HeapReport& heap,
                           const OutOfMemoryReport& report, const std::string& message,
                           const std::function<std::string()>& snapshot) {
  const int number = next_number(heap.device);
  if (number == 0) return {};
  const std::string name = folder + "/oom-" + std::to_string(getpid()) + "-gpu" +
                           std::to_string(heap.device) + "-" + std::to_string(number);
  std::string text;
  try {
    std::filesystem::create_directories(folder);
    write_file(name + ".txt", message + "\n");
    write_file(name + ".report.json", to_json(report));
    write_file(name + ".dump.json", write_dump({heap}));
    text = "Written to " + name + ".*; see gapless inspect " + name + ".dump.json";
    if (snapshot) {
      write_file(name + ".pickle", snapshot());
      text += " or " + name + ".pickle";
    }
  } catch (const std::exception& error) {
    text += (text.empty() ? "" : "; ") + std::string("dump_on_oom: ") + error.what();
  }
  return text + ".";
}

}  // namespace gapless
