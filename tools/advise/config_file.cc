#include "tools/advise/config_file.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <sstream>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "tools/search/value_in_file.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Ordered = nlohmann::ordered_json;

bool is_json(const std::string& path) { return fs::path(path).extension() == ".json"; }

std::vector<std::string> parts_of(const std::string& key) {
  std::vector<std::string> parts;
  std::istringstream stream(key);
  for (std::string part; std::getline(stream, part, '.');) parts.push_back(part);
  return parts;
}

// As YAML 1.1 and Hugging Face read them.
json plain_value(const YAML::Node& node) {
  if (!node.IsDefined() || node.IsNull()) return {};
  if (!node.IsScalar()) return json::object();
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // quoted
  bool truth = false;
  if (YAML::convert<bool>::decode(node, truth)) return truth;
  const json read = json::parse(text, nullptr, false);
  return read.is_number() ? read : json(text);
}

YAML::Node node_at(const YAML::Node& root, const std::vector<std::string>& parts) {
  YAML::Node node = YAML::Clone(root);
  for (const std::string& part : parts) {
    if (!node.IsMap() || !node[part].IsDefined()) return YAML::Node(YAML::NodeType::Undefined);
    node.reset(node[part]);
  }
  return node;
}

// What is to be written for a value.
Ordered read_value(const std::string& value) {
  const Ordered read = Ordered::parse(value, nullptr, false);
  return read.is_discarded() || read.is_structured() ? Ordered(value) : read;
}

std::string with_json_key(const std::string& path, const std::string& text, const std::string& key,
                          const std::string& value) {
  Ordered all;
  try {
    all = Ordered::parse(text);
  } catch (const Ordered::exception& error) {
    throw InputError(path + ": " + error.what());
  }
  Ordered* at = &all;
  for (const std::string& part : parts_of(key)) {
    if (at->is_null()) *at = Ordered::object();
    if (!at->is_object())
      throw InputError(fmt::format("{}: {}: there is a value in its place", path, key));
    at = &(*at)[part];
  }
  if (at->is_structured())
    throw InputError(fmt::format("{}: {}: it has several values", path, key));
  *at = read_value(value);
  return all.dump(2, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

// A line more in the map that is to have it: behind the file's last at the root, before the map's
// first one inside.
std::string with_yaml_line(const std::string& path, const std::string& text, const std::string& key,
                           const std::string& value) {
  const auto fail = [&] {
    return InputError(fmt::format(
        "{}: {}: it is not there, and cannot be added without changing more", path, key));
  };
  std::vector<std::string> parts = parts_of(key);
  const std::string name = parts.back();
  parts.pop_back();
  const YAML::Node root = YAML::Load(text);
  const YAML::Node parent = node_at(root, parts);
  if (!parent.IsMap() || parent.size() == 0 || parent.Style() == YAML::EmitterStyle::Flow)
    throw fail();
  std::string changed;
  if (parts.empty()) {
    changed =
        text + (text.empty() || text.ends_with('\n') ? "" : "\n") + name + ": " + value + "\n";
  } else {
    // A clone has no places; the original's are looked up by names.
    YAML::Node there = root;
    for (const std::string& part : parts) there.reset(there[part]);
    const int begin = there.begin()->first.Mark().pos;
    const int column = there.begin()->first.Mark().column;
    if (begin < 0 || column <= 0 || begin < column) throw fail();
    const std::string indent(static_cast<std::size_t>(column), ' ');
    const auto at = static_cast<std::size_t>(begin - column);
    changed = text.substr(0, at) + indent + name + ": " + value + "\n" + text.substr(at);
  }
  // Nothing else may be otherwise.
  YAML::Node read = YAML::Load(changed);
  parts.push_back(name);
  const YAML::Node added = node_at(read, parts);
  if (!added.IsScalar() || added.Scalar() != value) throw fail();
  YAML::Node holder = read;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) holder.reset(holder[parts[i]]);
  holder.remove(name);
  if (YAML::Dump(read) != YAML::Dump(YAML::Load(text))) throw fail();
  return changed;
}

std::optional<ConfigFile::Kind> kind_of(const std::function<bool(const char*)>& has) {
  using Kind = ConfigFile::Kind;
  if (has("zero_optimization") || has("train_micro_batch_size_per_gpu")) return Kind::deepspeed;
  if (has("compute_environment") || has("distributed_type")) return Kind::accelerate;
  const char* const arguments[] = {"per_device_train_batch_size", "gradient_accumulation_steps",
                                   "gradient_checkpointing", "num_train_epochs"};
  const auto known = std::count_if(std::begin(arguments), std::end(arguments), has);
  return known != 0 ? std::optional(Kind::trainer) : std::nullopt;
}

std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

std::string name_of(ConfigFile::Kind kind) {
  switch (kind) {
    case ConfigFile::Kind::accelerate:
      return "accelerate";
    case ConfigFile::Kind::deepspeed:
      return "DeepSpeed";
    case ConfigFile::Kind::trainer:
      break;
  }
  return "Trainer";
}

json ConfigFile::value(const std::string& key) const {
  if (is_json(path)) {
    json at = json::parse(text);
    for (const std::string& part : parts_of(key)) {
      if (!at.is_object() || !at.contains(part)) return {};
      json next = at[part];
      at = std::move(next);
    }
    return at;
  }
  return plain_value(node_at(YAML::Load(text), parts_of(key)));
}

std::optional<ConfigFile> config_file(const std::string& path) {
  const std::string suffix = fs::path(path).extension();
  std::error_code ignored;
  if ((suffix != ".json" && suffix != ".yaml" && suffix != ".yml") ||
      !fs::is_regular_file(path, ignored)) {
    return {};
  }
  ConfigFile file;
  file.path = path;
  file.text = read_file(path);
  // What the program reads in its own way (JSON of several lines, YAML of several documents) is its
  // own business.
  std::optional<ConfigFile::Kind> kind;
  if (is_json(path)) {
    const json read = json::parse(file.text, nullptr, false);
    if (!read.is_object()) return {};
    kind = kind_of([&](const char* key) { return read.contains(key); });
  } else {
    try {
      const std::vector<YAML::Node> documents = YAML::LoadAll(file.text);
      if (documents.size() != 1 || !documents[0].IsMap()) return {};
      kind = kind_of([&](const char* key) { return documents[0][key].IsDefined(); });
    } catch (const YAML::Exception&) {
      return {};
    }
  }
  if (!kind) return {};
  file.kind = *kind;
  return file;
}

std::string with_key(const std::string& path, const std::string& text, const std::string& key,
                     const std::string& value) {
  if (is_json(path)) return with_json_key(path, text, key, value);
  try {
    if (node_at(YAML::Load(text), parts_of(key)).IsDefined())
      return with_value(path, text, key, value);
    return with_yaml_line(path, text, key, value);
  } catch (const YAML::Exception& error) {
    throw InputError(path + ": " + error.what());
  }
}

std::string changed_lines(const std::string& before, const std::string& after) {
  // The longest common subsequence: configuration files are short.
  const std::vector<std::string> a = lines_in(before);
  const std::vector<std::string> b = lines_in(after);
  std::vector<std::vector<std::size_t>> common(a.size() + 1,
                                               std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = a.size(); i-- > 0;) {
    for (std::size_t j = b.size(); j-- > 0;) {
      common[i][j] =
          a[i] == b[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
    }
  }
  std::string text;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      ++i;
      ++j;
    } else if (i < a.size() && (j == b.size() || common[i + 1][j] >= common[i][j + 1])) {
      text += "-" + a[i++] + "\n";
    } else {
      text += "+" + b[j++] + "\n";
    }
  }
  return text;
}

}  // namespace gapless::tools
