#include "tools/advise/settings.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "allocator/base/error.h"
#include "tools/json_values.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// As people name them, "-" being "_", without "--".
const std::set<std::string>& names_of(Role role) {
  static const std::map<Role, std::set<std::string>> names = {
      {Role::batch,
       {"per_device_train_batch_size", "per_device_batch_size", "per_gpu_train_batch_size",
        "batch_size_per_gpu", "batch_size_per_device", "micro_batch_size", "micro_batch",
        "train_micro_batch_size_per_gpu", "train_batch_size", "batch_size", "batch", "bs"}},
      {Role::accumulation,
       {"gradient_accumulation_steps", "gradient_accumulation", "grad_accumulation_steps",
        "grad_accum_steps", "grad_accum", "accumulation_steps", "accumulate_grad_batches",
        "accum_steps", "accum"}},
      {Role::length,
       {"max_seq_length", "max_seq_len", "max_sequence_length", "max_length", "max_len",
        "seq_length", "seq_len", "sequence_length", "sequence_len", "block_size", "context_length",
        "cutoff_len", "model_max_length", "seq"}},
      {Role::checkpointing,
       {"gradient_checkpointing", "use_gradient_checkpointing", "grad_checkpointing",
        "grad_checkpoint", "activation_checkpointing", "checkpointing", "ckpt"}},
      {Role::bf16, {"bf16", "use_bf16", "mixed_precision", "precision", "dtype", "torch_dtype"}},
      {Role::optimizer, {"optim", "optimizer"}},
      {Role::lora_rank, {"lora_rank", "lora_r", "lora_dim"}},
      {Role::four_bit, {"load_in_4bit", "use_4bit"}},
      {Role::eight_bit, {"load_in_8bit", "use_8bit"}},
      {Role::zero_stage, {"zero_stage", "deepspeed_stage", "stage"}},
      {Role::offload, {"offload_optimizer", "offload_optimizer_device", "cpu_offload", "offload"}},
      {Role::bucket, {"reduce_bucket_size", "zero_reduce_bucket_size"}},
  };
  return names.at(role);
}

// Of each kind of file; empty where it has none. `always`: it may be added where it is not there.
struct Key {
  std::string name;
  bool always = true;
};

std::vector<Key> keys_of(ConfigFile::Kind kind, Role role) {
  switch (kind) {
    case ConfigFile::Kind::trainer:
      switch (role) {
        case Role::batch:
          return {{"per_device_train_batch_size", false}, {"micro_batch_size", false}};
        case Role::accumulation:
          return {{"gradient_accumulation_steps"}};
        case Role::length:
          return {{"max_length", false},
                  {"max_seq_length", false},
                  {"sequence_len", false},
                  {"cutoff_len", false}};
        case Role::checkpointing:
          return {{"gradient_checkpointing"}};
        case Role::bf16:
          return {{"bf16"}};
        case Role::optimizer:
          return {{"optim"}};
        case Role::lora_rank:
          return {{"lora_r", false}, {"lora_rank", false}};
        case Role::four_bit:
          return {{"load_in_4bit", false}};
        case Role::eight_bit:
          return {{"load_in_8bit", false}};
        default:
          return {};
      }
    case ConfigFile::Kind::accelerate:
      switch (role) {
        case Role::bf16:
          return {{"mixed_precision"}};
        case Role::zero_stage:
          return {{"deepspeed_config.zero_stage", false}};
        case Role::offload:
          return {{"deepspeed_config.offload_optimizer_device", false}};
        case Role::accumulation:
          return {{"deepspeed_config.gradient_accumulation_steps", false}};
        default:
          return {};
      }
    case ConfigFile::Kind::deepspeed:
      break;
  }
  switch (role) {
    case Role::batch:
      return {{"train_micro_batch_size_per_gpu", false}};
    case Role::accumulation:
      return {{"gradient_accumulation_steps", false}};
    case Role::bf16:
      return {{"bf16.enabled", false}};
    case Role::zero_stage:
      return {{"zero_optimization.stage"}};
    case Role::offload:
      return {{"zero_optimization.offload_optimizer.device"}};
    case Role::bucket:
      return {{"zero_optimization.reduce_bucket_size"}};
    default:
      return {};
  }
}

// "--Batch-size" -> "batch_size"; of "trainer.batch_size" the last name.
std::string plain_name(std::string name) {
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  if (const std::size_t dot = name.rfind('.'); dot != std::string::npos) name.erase(0, dot + 1);
  for (char& c : name)
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

bool is_switch(Role role) {
  return role == Role::checkpointing || role == Role::four_bit || role == Role::eight_bit;
}

// The words of a command that say what an option is.
struct Word {
  std::size_t at = 0;   // in the command
  std::string name;     // as it is spelled
  bool joined = false;  // "--name=value"
  std::optional<std::string> value;
};

std::vector<Word> words_of(const std::vector<std::string>& command) {
  std::vector<Word> words;
  for (std::size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    const std::size_t equals = word.find('=');
    const bool dashes =
        word.size() > 1 && word[0] == '-' && !std::isdigit(static_cast<unsigned char>(word[1]));
    if (equals != std::string::npos && equals != 0) {
      words.push_back({i, word.substr(0, equals), true, word.substr(equals + 1)});
    } else if (dashes) {
      const bool has_value =
          i + 1 < command.size() && (command[i + 1].empty() || command[i + 1][0] != '-');
      words.push_back({i, word, false, has_value ? std::optional(command[i + 1]) : std::nullopt});
    }
  }
  return words;
}

json value_of(const std::string& text) {
  const json read = json::parse(text, nullptr, false);
  if (text == "True") return true;
  if (text == "False") return false;
  return read.is_discarded() || read.is_structured() ? json(text) : read;
}

// Whether what is appended to it reaches the program.
bool takes_words(const std::vector<std::string>& command) {
  static const std::set<std::string> shells = {"sh", "bash", "dash", "zsh", "fish", "make", "env"};
  return !shells.contains(fs::path(command.front()).filename());
}

bool fits_role(const SettingPlace& place, Role role) {
  switch (role) {
    case Role::batch:
    case Role::accumulation:
    case Role::length:
    case Role::lora_rank:
    case Role::zero_stage:
      return place.takes_value && place.value.is_number_integer();
    case Role::checkpointing:
    case Role::four_bit:
    case Role::eight_bit:
      return !place.takes_value || place.value.is_boolean() || place.value == 0 ||
             place.value == 1 || (place.kind == SettingPlace::Kind::file && place.value.is_null());
    default:
      return true;
  }
}

}  // namespace

Settings::Settings(std::vector<std::string> command, ProgramFacts facts)
    : command_(std::move(command)), facts_(std::move(facts)) {
  std::set<std::string> seen;
  for (const std::string& word : command_) {
    const std::size_t equals = word.find('=');
    for (const std::string& path :
         {word, equals == std::string::npos ? "" : word.substr(equals + 1)}) {
      if (path.empty() || !seen.insert(path).second) continue;
      if (auto file = config_file(path)) files_.push_back(std::move(*file));
    }
  }
}

std::optional<SettingPlace> Settings::in_options(Role role, bool only_named) const {
  for (const OptionFacts& option : facts_.options) {
    const bool named = std::any_of(
        option.names.begin(), option.names.end(),
        [&](const std::string& name) { return names_of(role).contains(plain_name(name)); });
    if (!named) continue;
    const std::vector<Word> words = words_of(command_);
    const bool in_command = std::any_of(words.begin(), words.end(), [&](const Word& word) {
      return std::find(option.names.begin(), option.names.end(), word.name) != option.names.end();
    });
    if (only_named && !in_command) continue;
    if (!in_command && !takes_words(command_)) continue;
    SettingPlace place;
    place.kind = SettingPlace::Kind::option;
    place.names = option.names;
    place.name = option.names.front();
    place.value = option.value;
    place.takes_value = option.takes_value;
    place.choices = option.choices;
    if (!option.takes_value && option.sets != true) continue;  // it switches something off
    if (fits_role(place, role)) return place;
  }
  return {};
}

std::optional<SettingPlace> Settings::in_words(Role role) const {
  if (!facts_.options.empty()) return {};  // its parser knows better
  for (const Word& word : words_of(command_)) {
    if (!names_of(role).contains(plain_name(word.name))) continue;
    SettingPlace place;
    place.name = word.name;
    place.names = {word.name};
    place.takes_value = word.value.has_value();
    place.value = word.value ? value_of(*word.value) : json(true);
    if (fits_role(place, role)) return place;
  }
  return {};
}

std::optional<SettingPlace> Settings::in_files(Role role) const {
  std::optional<SettingPlace> absent;
  for (const ConfigFile& file : files_) {
    for (const Key& key : keys_of(file.kind, role)) {
      SettingPlace place;
      place.kind = SettingPlace::Kind::file;
      place.path = file.path;
      place.name = key.name;
      place.value = file.value(key.name);
      if (place.value.is_null()) {
        if (key.always && !absent) absent = place;
        continue;
      }
      if (fits_role(place, role)) return place;
    }
  }
  if (absent && role == Role::accumulation) absent->value = 1;  // what they all take it for
  return absent;
}

std::optional<SettingPlace> Settings::find(Role role) const {
  if (auto place = in_options(role, true)) return place;
  if (auto place = in_words(role)) return place;
  if (auto place = in_files(role)) return place;
  return in_options(role, false);
}

std::optional<std::string> Settings::optimizer_with(const SettingPlace& place,
                                                    const std::vector<std::string>& parts,
                                                    const std::string& trainers) const {
  const std::vector<std::string>& choices = place.choices;
  if (std::find(choices.begin(), choices.end(), trainers) != choices.end()) return trainers;
  for (const std::string& choice : choices) {
    if (std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
          return choice.find(part) != std::string::npos;
        })) {
      return choice;
    }
  }
  const bool trainer = place.kind == SettingPlace::Kind::file || facts_.uses("transformers");
  return trainer && plain_name(place.name) == "optim" ? std::optional<std::string>(trainers)
                                                      : std::nullopt;
}

std::optional<std::string> spelled(const SettingPlace& place, Role role, const std::string& value) {
  if (is_switch(role)) {
    if (place.value == true || place.value == 1) return {};  // it is set
    if (!place.takes_value) return "";
    if (place.kind == SettingPlace::Kind::file) return "true";
    return place.value.is_number() ? "1" : "True";
  }
  if (role == Role::offload && (!place.takes_value || place.value.is_boolean())) {
    if (place.value == true) return {};
    return place.takes_value ? "True" : "";
  }
  if (role != Role::bf16) return value;
  if (!place.takes_value)
    return place.value == true ? std::nullopt : std::optional<std::string>("");
  const std::string name = plain_name(place.name.substr(place.name.rfind('.') + 1));
  if (name == "bf16" || name == "use_bf16" || name == "enabled") {
    if (place.value == true) return {};
    return place.kind == SettingPlace::Kind::file ? "true" : "True";
  }
  for (const char* const choice : {"bf16", "bfloat16", "bf16-mixed"}) {
    if (std::find(place.choices.begin(), place.choices.end(), choice) != place.choices.end())
      return choice;
  }
  const std::string now =
      place.value.is_string() ? place.value.get<std::string>() : place.value.dump();
  if (now.find("bf16") != std::string::npos || now == "bfloat16") return {};
  if (now.starts_with("float")) return "bfloat16";
  if (now.ends_with("-true") || now.ends_with("-mixed")) return "bf16-mixed";
  if (now == "fp16" || now == "fp32" || now == "no" || now == "32" || now == "16") return "bf16";
  return {};
}

std::string Settings::text(const SettingPlace& place, const std::string& value) const {
  const std::string now = place.value.is_null()     ? "(not set)"
                          : place.value.is_string() ? place.value.get<std::string>()
                                                    : place.value.dump();
  if (place.kind == SettingPlace::Kind::file)
    return fmt::format("{}: {}: {} -> {}", place.path, place.name, now, value);
  return value.empty() ? place.name : fmt::format("{} {} -> {}", place.name, now, value);
}

void set(Attempt& attempt, const SettingPlace& place, const std::string& value) {
  if (place.kind == SettingPlace::Kind::file) {
    auto found = attempt.files.find(place.path);
    const std::string text =
        found != attempt.files.end() ? found->second : config_file(place.path).value().text;
    attempt.files[place.path] = with_key(place.path, text, place.name, value);
    return;
  }
  for (const Word& word : words_of(attempt.command)) {
    if (std::find(place.names.begin(), place.names.end(), word.name) == place.names.end()) continue;
    if (word.joined) {
      attempt.command[word.at] = word.name + "=" + value;
      return;
    }
    if (word.value && place.takes_value) attempt.command[word.at + 1] = value;
    return;
  }
  attempt.command.push_back(place.name);
  if (place.takes_value) attempt.command.push_back(value);
}

}  // namespace gapless::tools
