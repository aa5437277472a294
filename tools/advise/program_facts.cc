#include "tools/advise/program_facts.h"

#include <algorithm>

#include "tools/json_values.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

std::string told_text(const json& object, const char* name) {
  const json value = member(object, name);
  return value.is_string() ? value.get<std::string>() : "";
}

bool told_flag(const json& object, const char* name) { return member(object, name) == true; }

std::vector<std::string> told_texts(const json& object, const char* name) {
  std::vector<std::string> texts;
  for (const json& value : member(object, name)) {
    if (value.is_string()) texts.push_back(value);
  }
  return texts;
}

std::vector<std::uint64_t> told_sizes(const json& object, const char* name) {
  std::vector<std::uint64_t> sizes;
  for (const json& value : member(object, name)) sizes.push_back(number(value));
  return sizes;
}

ParameterFacts parameter_of(const json& told) {
  ParameterFacts facts;
  facts.name = told_text(told, "name");
  facts.module = told_text(told, "module");
  facts.dtype = told_text(told, "dtype");
  facts.device = told_text(told, "device");
  facts.trained = told_flag(told, "trained");
  facts.shape = told_sizes(told, "shape");
  facts.numbers = number(member(told, "numbers"));
  facts.bytes = number(member(told, "bytes"));
  facts.address = number(member(told, "address"));
  return facts;
}

OptimizerFacts optimizer_of(const json& told) {
  OptimizerFacts facts;
  facts.name = told_text(told, "class");
  facts.library = told_text(told, "library");
  facts.numbers = number(member(told, "numbers"));
  const json states = member(told, "states");
  if (states.is_object()) {
    for (const auto& [kind, bytes] : states.items()) facts.state_bytes[kind] = number(bytes);
  }
  facts.fused = told_flag(told, "fused");
  facts.on_gpu = told_flag(told, "on_gpu");
  return facts;
}

WrapperFacts wrapper_of(const json& told) {
  WrapperFacts facts;
  facts.kind = told_text(told, "kind");
  for (const std::uint64_t gpu : told_sizes(told, "gpus"))
    facts.gpus.push_back(static_cast<int>(gpu));
  facts.stage = static_cast<int>(number(member(told, "stage")));
  facts.offload_optimizer = told_text(told, "offload_optimizer");
  facts.offload_param = told_text(told, "offload_param");
  return facts;
}

OptionFacts option_of(const json& told) {
  OptionFacts facts;
  facts.names = told_texts(told, "options");
  const std::string first = told_text(told, "option");
  std::erase(facts.names, first);
  facts.names.insert(facts.names.begin(), first);
  facts.takes_value = told_flag(told, "takes_value");
  facts.sets = member(told, "sets");
  facts.value = member(told, "value");
  facts.choices = told_texts(told, "choices");
  return facts;
}

}  // namespace

const WrapperFacts* ProgramFacts::wrapped_by(const std::string& kind) const {
  const auto found = std::find_if(wrappers.begin(), wrappers.end(),
                                  [&](const WrapperFacts& one) { return one.kind == kind; });
  return found == wrappers.end() ? nullptr : &*found;
}

bool ProgramFacts::uses(const std::string& library) const {
  return std::find(libraries.begin(), libraries.end(), library) != libraries.end();
}

ProgramFacts facts_of(const json& program) {
  ProgramFacts facts;
  if (!program.is_object()) return facts;
  facts.known = true;
  facts.torch = told_text(program, "torch");
  facts.world = std::max(1, static_cast<int>(number(member(program, "world"))));
  facts.libraries = told_texts(program, "libraries");
  for (const json& model : member(program, "models"))
    facts.models.push_back(told_text(model, "class"));
  const json parameters = member(program, "parameters");
  for (const json& group : member(parameters, "groups"))
    facts.groups.push_back(parameter_of(group));
  for (const json& one : member(parameters, "largest")) facts.largest.push_back(parameter_of(one));
  if (const json rank = member(parameters, "lora_rank"); rank.is_number())
    facts.lora_rank = number(rank);
  for (const json& one : member(program, "optimizers"))
    facts.optimizers.push_back(optimizer_of(one));
  for (const json& one : member(program, "wrappers")) facts.wrappers.push_back(wrapper_of(one));
  facts.checkpointed = told_flag(program, "checkpointed");
  facts.can_checkpoint = told_texts(program, "can_checkpoint");
  facts.autocast = told_text(program, "autocast");
  for (const json& one : member(program, "losses")) {
    facts.losses.push_back(
        {told_sizes(one, "shape"), told_text(one, "dtype"), number(member(one, "bytes"))});
  }
  facts.embedded = told_sizes(program, "embedded");
  for (const json& one : member(program, "arguments")) facts.options.push_back(option_of(one));
  return facts;
}

}  // namespace gapless::tools
