// What the watch in Python told of a program (simgpu/python/watch_program.py), as values.
//
//   {"parameters": {"largest": [{"name": "lm_head.weight", "dtype": "float32", ...}]}, ...}
//
// All of it may be missing: a program without torch.nn has no models, one without argparse no
// options.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace gapless::tools {

/// Parameters of one kind together, or one of the largest by itself.
struct ParameterFacts {
  std::string name;    // of a single one: "model.embed_tokens.weight"
  std::string module;  // the class of the module that has it: "Linear"
  std::string dtype;   // "float32", "bfloat16", "uint8" (packed), ...
  std::string device;  // "cuda", "cpu", "meta"
  bool trained = false;
  std::vector<std::uint64_t> shape;
  std::uint64_t numbers = 0;
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;  // on a GPU
};

struct OptimizerFacts {
  std::string name;     // its class
  std::string library;  // "torch", "bitsandbytes"
  std::uint64_t numbers = 0;
  std::map<std::string, std::uint64_t> state_bytes;  // "cuda:float32" -> bytes
  bool fused = false;
  bool on_gpu = false;
};

/// What is around a model.
struct WrapperFacts {
  std::string kind;  // "DataParallel", "DDP", "FSDP", "DeepSpeed"
  std::vector<int> gpus;
  int stage = 0;  // DeepSpeed's
  std::string offload_optimizer;
  std::string offload_param;
};

/// The largest that a loss took.
struct LossFacts {
  std::vector<std::uint64_t> shape;
  std::string dtype;
  std::uint64_t bytes = 0;
};

/// An option that the program's own parser knows.
struct OptionFacts {
  std::vector<std::string> names;  // "--batch-size", "-b"; the first is the one to use
  bool takes_value = true;
  nlohmann::json sets;   // what one without a value sets
  nlohmann::json value;  // what it was in the run
  std::vector<std::string> choices;
};

struct ProgramFacts {
  bool known = false;  // anything was told
  std::string torch;
  int world = 1;
  std::vector<std::string> libraries;
  std::vector<std::string> models;  // classes, the largest first
  std::vector<ParameterFacts> groups;
  std::vector<ParameterFacts> largest;
  std::optional<std::uint64_t> lora_rank;
  std::vector<OptimizerFacts> optimizers;
  std::vector<WrapperFacts> wrappers;
  bool checkpointed = false;  // something is computed again in the backward pass
  std::vector<std::string> can_checkpoint;
  std::string autocast;  // its type; empty where it is not used
  std::vector<LossFacts> losses;
  std::vector<std::uint64_t> embedded;  // batch and length of the most that was embedded at once
  std::vector<OptionFacts> options;

  [[nodiscard]] const WrapperFacts* wrapped_by(const std::string& kind) const;
  [[nodiscard]] bool uses(const std::string& library) const;
};

/// Of what the watch told; with `known` false where that is no object.
ProgramFacts facts_of(const nlohmann::json& program);

}  // namespace gapless::tools
