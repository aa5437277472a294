#include "tools/search/value_in_file.h"

#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "allocator/base/error.h"
#include "tools/search/dotted_key.h"
#include "tools/search/value_in_toml.h"

namespace gapless::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Place {
  const std::string& file;
  const std::string& key;

  [[noreturn]] void fail(const std::string& cause) const {
    throw InputError(fmt::format("{}: {}: {}", file, key, cause));
  }
};

Json* json_at(Json& from, const std::string& key) {
  if (key.empty()) return &from;
  Json* there = nullptr;
  any_split(key, [&](const std::string& name, const std::string& rest) {
    if (from.is_object() && from.contains(name)) {
      there = json_at(from[name], rest);
    } else if (const std::size_t at = position_of(name); from.is_array() && at < from.size()) {
      there = json_at(from[at], rest);
    }
    return there != nullptr;
  });
  return there;
}

std::string in_json(const Place& place, const std::string& text, const std::string& value) {
  Json all;
  try {
    all = Json::parse(text);
  } catch (const Json::exception& error) {
    throw InputError(place.file + ": " + error.what());
  }
  Json* const there = json_at(all, place.key);
  if (there == nullptr) place.fail("there is no such key");
  if (there->is_structured()) place.fail("it has several values");
  const Json read = Json::parse(value, nullptr, false);
  *there = read.is_discarded() || read.is_structured() ? Json(value) : read;
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

using Path = std::vector<std::string>;

// Nothing where the key is not there.
bool yaml_path(const YAML::Node& from, const std::string& key, Path& path) {
  if (key.empty()) return true;
  return any_split(key, [&](const std::string& name, const std::string& rest) {
    const std::size_t at = from.IsSequence() ? position_of(name) : SIZE_MAX;
    const bool there =
        from.IsMap() ? from[name].IsDefined() : from.IsSequence() && at < from.size();
    if (!there) return false;
    path.push_back(name);
    if (yaml_path(from.IsMap() ? from[name] : from[at], rest, path)) return true;
    path.pop_back();
    return false;
  });
}

YAML::Node yaml_at(const YAML::Node& from, const Path& path, std::size_t depth = 0) {
  if (depth == path.size()) return from;
  return yaml_at(from.IsMap() ? from[path[depth]] : from[position_of(path[depth])], path,
                 depth + 1);
}

// Whether two documents are the same but for what is at `path`, where that is not null.
bool same_but(const YAML::Node& one, const YAML::Node& other, const Path* path,
              std::size_t depth = 0) {
  if (path != nullptr && depth == path->size()) return true;
  if (one.Type() != other.Type() || one.size() != other.size()) return false;
  if (one.IsScalar()) return one.Scalar() == other.Scalar();
  if (one.IsSequence()) {
    for (std::size_t i = 0; i < one.size(); ++i) {
      const bool leads = path != nullptr && position_of((*path)[depth]) == i;
      if (!same_but(one[i], other[i], leads ? path : nullptr, depth + 1)) return false;
    }
  }
  if (one.IsMap()) {
    for (auto a = one.begin(), b = other.begin(); a != one.end(); ++a, ++b) {
      const bool leads =
          path != nullptr && a->first.IsScalar() && a->first.Scalar() == (*path)[depth];
      if (!same_but(a->first, b->first, nullptr)) return false;
      if (!same_but(a->second, b->second, leads ? path : nullptr, depth + 1)) return false;
    }
  }
  return true;
}

// Where the scalar that begins there ends; no scalar over several lines has a value to vary.
std::size_t end_of_scalar(const std::string& text, std::size_t begin, bool in_flow) {
  const char quote = text[begin];
  if (quote == '"' || quote == '\'') {
    std::size_t end = begin + 1;
    while (end < text.size() && text[end] != quote)
      end += text[end] == '\\' && quote == '"' ? 2 : 1;
    return std::min(end + 1, text.size());
  }
  std::size_t end = begin;
  while (end < text.size() && text[end] != '\n' && text[end] != '\r') {
    if (text[end] == '#' && end > begin && text[end - 1] == ' ') break;
    if (in_flow && (text[end] == ',' || text[end] == '}' || text[end] == ']')) break;
    ++end;
  }
  while (end > begin && (text[end - 1] == ' ' || text[end - 1] == '\t')) --end;
  return end;
}

std::string in_yaml(const Place& place, const std::string& text, const std::string& value) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() != 1) {
      throw InputError(
          fmt::format("{}: {} documents in one file; the value is to be in the only one",
                      place.file, documents.size()));
    }
    Path path;
    if (!yaml_path(documents[0], place.key, path)) place.fail("there is no such key");
    const YAML::Node node = yaml_at(documents[0], path);
    if (!node.IsScalar()) place.fail(node.IsNull() ? "it has no value" : "it has several values");
    const std::size_t begin = node.Mark().pos;
    if (node.Mark().pos < 0 || begin >= text.size()) place.fail("its place is not known");
    // What the new text says is what is asked for, and nothing else has changed, or it is refused.
    for (const bool in_flow : {false, true}) {
      const std::size_t end = end_of_scalar(text, begin, in_flow);
      std::string changed = text.substr(0, begin) + value + text.substr(end);
      try {
        const YAML::Node read = YAML::Load(changed);
        const YAML::Node there = yaml_at(read, path);
        if (same_but(documents[0], read, &path) && there.IsScalar() && there.Scalar() == value) {
          return changed;
        }
      } catch (const YAML::Exception&) {  // so it was not all of the value
      }
    }
    place.fail("its value cannot be replaced without changing more (an anchor, several lines?)");
  } catch (const YAML::Exception& error) {
    throw InputError(place.file + ": " + error.what());
  }
}

}  // namespace

std::string with_value(const std::string& file, const std::string& text, const std::string& key,
                       const std::string& value) {
  const Place place{file, key};
  const std::string suffix = std::filesystem::path(file).extension().string();
  if (suffix == ".json") return in_json(place, text, value);
  if (suffix == ".yaml" || suffix == ".yml") return in_yaml(place, text, value);
  if (suffix == ".toml") return with_toml_value(file, text, key, value);
  throw InputError(file + ": values can be varied in .json, .toml, .yaml and .yml files");
}

}  // namespace gapless::tools
