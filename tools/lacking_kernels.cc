#include "tools/lacking_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/json_values.h"
#include "tools/older_gpu.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

struct Code {
  bool is_ptx = false;
  int capability = 0;
  char variant = '\0';  // 'a': that one only; 'f': its family
};

Code code_of(const std::string& word) {
  Code code;
  code.is_ptx = word.starts_with("compute_");
  const std::size_t digits = word.find_first_of("0123456789");
  if (digits == std::string::npos) return code;
  char* end = nullptr;
  code.capability = static_cast<int>(std::strtol(word.c_str() + digits, &end, 10));
  code.variant = *end;
  return code;
}

bool runs_on(const Code& code, int capability) {
  if (code.variant == 'a') return code.capability == capability;
  const bool of_family = code.capability / 10 == capability / 10;
  const bool no_older = code.capability <= capability;
  return no_older && (of_family || (code.is_ptx && code.variant == '\0'));
}

}  // namespace

bool has_kernels(const json& built_for, int capability) {
  if (!built_for.is_array() || built_for.empty()) return true;
  return std::any_of(built_for.begin(), built_for.end(), [&](const json& word) {
    return word.is_string() && runs_on(code_of(word.get<std::string>()), capability);
  });
}

void judge_kernels(json& row) {
  const std::string note = lacking_kernels_note(row);
  if (note.empty()) return;
  row["verdict"] = row["verdict"].get<std::string>().append(kWithAnotherBuild);
  if (row.contains("notes")) row["notes"].push_back(note);
}

std::string lacking_kernels_note(const json& row) {
  const json capability = member(row, "compute_capability");
  const json built_for = member(row, "built_for");
  if (member(row, "fits") != true || !capability.is_string()) return {};
  std::string digits = capability.get<std::string>();
  std::erase(digits, '.');
  if (has_kernels(built_for, std::atoi(digits.c_str()))) return {};
  std::vector<std::string> there;
  for (const json& word : built_for) {
    if (word.is_string())
      there.push_back(capability_text(code_of(word.get<std::string>()).capability));
  }
  return fmt::format(
      "this build of PyTorch has kernels for compute capability {}, and none for {}: there it ends "
      "at its first one, and what another build takes was not seen",
      fmt::join(there, ", "), capability.get<std::string>());
}

}  // namespace gapless::tools
