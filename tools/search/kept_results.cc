#include "tools/search/kept_results.h"

#include <filesystem>

#include <fmt/format.h>

#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "allocator/base/read_budget.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kMark = "gapless search";
constexpr std::uintmax_t kLargestRead = 64 << 20;

// FNV-1a, which tells one version of a file from the next.
std::uint64_t hash_of(const std::string& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Null where it is no file.
json mark_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error) return {};
  if (bytes > kLargestRead) {
    return fmt::format("{} bytes of {}", bytes,
                       fs::last_write_time(path, error).time_since_epoch().count());
  }
  try {
    return fmt::format("{} bytes, {:016x}", bytes, hash_of(read_file(path)));
  } catch (const InputError&) {  // nobody may read it, and so nobody can know it again
    return "unreadable";
  }
}

bool is_result(const json& entry) {
  return entry.is_object() && entry.value("of", json()).is_object() &&
         entry.value("rows", json()).is_array() && entry.value("fits", json()).is_boolean() &&
         entry.value("verdict", json()).is_string() && entry.value("reason", json()).is_string() &&
         entry.value("seconds", json()).is_number() &&
         entry.value("host_bytes", json()).is_number_unsigned();
}

}  // namespace

KeptResults::KeptResults(std::string file) : file_(std::move(file)) {
  if (file_.empty() || !fs::exists(file_)) return;
  const std::string text = read_file(file_);
  if (text.empty()) return;
  ReadBudget budget(file_, text.size());
  const json all = parse_json(text, budget, "");
  if (!all.is_object() || !all.contains(kMark) || !all.value("probes", json()).is_array()) {
    throw InputError(file_ + ": it holds no results of gapless search, and is left as it is");
  }
  for (const json& entry : all["probes"]) {
    if (!is_result(entry)) {
      throw InputError(fmt::format("{}: probes[{}]: not a result that gapless search wrote", file_,
                                   results_.size()));
    }
    results_[json_text(entry["of"])] = entry;
  }
}

std::optional<ProbeResult> KeptResults::find(const json& of) const {
  const auto found = results_.find(json_text(of));
  if (found == results_.end()) return {};
  const json& entry = found->second;
  ProbeResult result;
  result.probed = entry["fits"].get<bool>() ? Probed::fits : Probed::fails;
  result.verdict = entry["verdict"];
  result.reason = entry["reason"];
  result.rows = entry["rows"];
  result.status = entry.value("exit_status", 0);
  result.seconds = entry["seconds"];
  result.host_bytes = entry["host_bytes"];
  result.kept = true;
  return result;
}

void KeptResults::keep(const json& of, const ProbeResult& result) {
  if (file_.empty() || result.probed == Probed::not_known || result.probed == Probed::in_doubt) {
    return;
  }
  results_[json_text(of)] = {{"of", of},
                             {"fits", result.probed == Probed::fits},
                             {"verdict", result.verdict},
                             {"reason", result.reason},
                             {"exit_status", result.status},
                             {"seconds", result.seconds},
                             {"host_bytes", result.host_bytes},
                             {"rows", result.rows}};
  json probes = json::array();
  for (const auto& [key, entry] : results_) probes.push_back(entry);
  write_file(file_, json_text({{kMark, 1}, {"probes", std::move(probes)}}, 1) + "\n");
}

json FileMarks::of(const std::vector<std::string>& words) {
  json marks = json::object();
  for (const std::string& word : words) {
    std::size_t begin = 0;
    do {
      const std::string path = word.substr(begin);
      const auto known = known_.find(path);
      const json mark = known == known_.end() ? known_[path] = mark_of(path) : known->second;
      if (!mark.is_null()) marks[path] = mark;
      begin = word.find('=', begin) + 1;
    } while (begin != 0);
  }
  return marks;
}

}  // namespace gapless::tools
