#include "tools/inputs.h"

#include <algorithm>
#include <sstream>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/device/options.h"
#include "allocator/trace/load.h"
#include "bench/peers/peer.h"
#include "bench/replay/in_torch.h"

namespace gapless::tools {

std::vector<Trace> load_all(const std::vector<std::string>& paths) {
  std::vector<Trace> traces;
  for (const std::string& path : paths) {
    for (Trace& trace : load_traces(path)) traces.push_back(std::move(trace));
  }
  return traces;
}

std::vector<std::string> allocators_of(const std::string& list) {
  std::vector<std::string> known = bench::peer_names();
  for (std::string& name : bench::torch_allocator_names()) known.push_back(std::move(name));
  std::vector<std::string> chosen;
  std::stringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    if (std::find(known.begin(), known.end(), item) == known.end()) {
      std::string names;
      for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
      throw InputError("--allocator: there is no allocator \"" + item + "\"; there are " + names);
    }
    chosen.push_back(item);
  }
  if (chosen.empty()) throw InputError("--allocator: the list is empty");
  return chosen;
}

std::uint64_t bytes_of(const std::string& text, const std::string& option) {
  if (text.empty()) return 0;
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes == 0) {
    throw InputError(option + ": \"" + text + "\" is no size; write 16GiB, 14.5G or 20971520");
  }
  return *bytes;
}

void check_settings(const std::string& settings) {
  std::vector<std::string> warnings;
  (void)parse_options(settings, warnings);
  if (!warnings.empty()) throw InputError("--conf: " + warnings.front());
}

}  // namespace gapless::tools
