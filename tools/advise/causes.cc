#include "tools/advise/causes.h"

#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "allocator/base/bytes.h"
#include "tools/advise/what_if.h"
#include "tools/json_values.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using simgpu::HeldBlock;
using simgpu::Holder;
using simgpu::MemorySite;

constexpr std::uint64_t kRounding = 2 << 20;  // what an allocator may add to a large request

bool is_low_precision(const std::string& dtype) {
  return dtype == "bfloat16" || dtype == "float16" || dtype == "uint8" || dtype == "int8" ||
         dtype.starts_with("float8");
}

// The last part of "peft.utils.other.prepare_model_for_kbit_training", where that says more than
// that a module was called.
std::string function_of(const std::string& called) {
  const std::string name = called.substr(called.rfind('.') + 1);
  return name == "forward" || name.starts_with("_") || name.starts_with("<") ? "" : name;
}

// A process at its peak on one GPU.
class Peak {
 public:
  Peak(const TracedMemory& traced, ProgramFacts facts)
      : sites_(traced.sites),
        blocks_(live_at(traced.blocks, traced.course.peak.event)),
        allocated_(traced.course.peak.allocated_bytes),
        facts_(std::move(facts)) {
    taken_.resize(blocks_.size());
  }

  [[nodiscard]] const ProgramFacts& facts() const { return facts_; }
  [[nodiscard]] std::uint64_t allocated() const { return allocated_; }

  using Which = std::function<bool(const HeldBlock&, const MemorySite&)>;

  // The blocks that belong there and to no cause before it.
  std::vector<HeldBlock> take(const Which& which) {
    std::vector<HeldBlock> found;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (taken_[i] || !which(blocks_[i], site_of(blocks_[i]))) continue;
      taken_[i] = true;
      found.push_back(blocks_[i]);
    }
    return found;
  }
  std::vector<HeldBlock> take(Holder holder) {
    return take(
        [holder](const HeldBlock& block, const MemorySite&) { return block.holder == holder; });
  }

  [[nodiscard]] MemorySite site_of(const HeldBlock& block) const {
    return block.site == 0 || block.site > sites_.size() ? MemorySite{} : sites_[block.site - 1];
  }

  // By which line most of them were asked for.
  [[nodiscard]] std::string line_of(const std::vector<HeldBlock>& blocks) const {
    std::map<std::string, std::uint64_t> bytes;
    for (const HeldBlock& block : blocks) {
      const MemorySite site = site_of(block);
      const std::string function = function_of(site.called);
      std::string where = site.line;
      if (!site.library_line.empty()) {
        where += (where.empty() ? "in " : ", in ") + site.library_line;
        if (!function.empty() && block.holder == Holder::parameters) where += " (" + function + ")";
      }
      bytes[where] += block.bytes;
    }
    const auto most =
        std::max_element(bytes.begin(), bytes.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == bytes.end() ? "" : most->first;
  }

  // The library's function by which most were made, where all of that have one.
  [[nodiscard]] std::string made_by(const std::vector<HeldBlock>& blocks) const {
    std::string name;
    for (const HeldBlock& block : blocks) {
      const std::string function = function_of(site_of(block).called);
      if (!name.empty() && function != name) return {};
      name = function;
    }
    return name;
  }

 private:
  const std::vector<MemorySite>& sites_;
  std::vector<HeldBlock> blocks_;
  std::vector<bool> taken_;
  std::uint64_t allocated_;
  ProgramFacts facts_;
};

std::uint64_t sum_of(const std::vector<HeldBlock>& blocks) {
  std::uint64_t sum = 0;
  for (const HeldBlock& block : blocks) sum += block.bytes;
  return sum;
}

using Causes = std::vector<Cause>;

void add(Causes& causes, const Peak& peak, const std::string& id, const std::string& what,
         const std::vector<HeldBlock>& blocks) {
  if (blocks.empty()) return;
  causes.push_back({id, what, sum_of(blocks), peak.line_of(blocks), true});
}

// --- parameters ----------------------------------------------------------------------------------

std::uint64_t numbers_of(const ProgramFacts& facts,
                         const std::function<bool(const ParameterFacts&)>& which) {
  std::uint64_t sum = 0;
  for (const ParameterFacts& group : facts.groups) {
    if (group.device == "cuda" && which(group)) sum += group.numbers;
  }
  return sum;
}

// Of a model whose parameters are mostly of lower precision, those that are not, though nothing
// trains them: something has turned them.
void add_frozen_float32(Causes& causes, Peak& peak) {
  const ProgramFacts& facts = peak.facts();
  const std::uint64_t low =
      numbers_of(facts, [](const auto& group) { return is_low_precision(group.dtype); });
  const std::uint64_t full =
      numbers_of(facts, [](const auto& group) { return group.dtype == "float32"; });
  if (low <= full) return;
  std::vector<const ParameterFacts*> wide;
  for (const ParameterFacts& one : facts.largest) {
    if (one.dtype == "float32" && one.device == "cuda" && !one.trained && one.address != 0) {
      wide.push_back(&one);
    }
  }
  std::vector<std::string> names;
  const auto found = peak.take([&](const HeldBlock& block, const MemorySite&) {
    if (block.holder != Holder::parameters) return false;
    for (const ParameterFacts* const one : wide) {
      if (one->address < block.address || one->address >= block.address + block.bytes) continue;
      names.push_back(fmt::format("{} ({})", one->name, fmt::join(one->shape, " x ")));
      return true;
    }
    return false;
  });
  if (found.empty()) return;
  constexpr std::size_t kNamed = 3;
  const std::size_t more = names.size() - std::min(names.size(), kNamed);
  names.resize(std::min(names.size(), kNamed));
  const std::string maker = peak.made_by(found);
  add(causes, peak, "float32_frozen_parameters",
      fmt::format("float32 parameters that nothing trains, in a model of lower precision: {}{}{}",
                  fmt::join(names, ", "), more == 0 ? "" : fmt::format(" and {} more", more),
                  maker.empty() ? "" : ", made so by " + maker),
      found);
}

void add_parameters(Causes& causes, Peak& peak) {
  const ProgramFacts& facts = peak.facts();
  const auto found = peak.take(Holder::parameters);
  std::map<std::string, std::uint64_t> numbers;
  std::uint64_t all = 0;
  std::uint64_t trained = 0;
  for (const ParameterFacts& group : facts.groups) {
    if (group.device != "cuda") continue;
    numbers[group.dtype] += group.numbers;
    all += group.numbers;
    if (group.trained) trained += group.numbers;
  }
  std::vector<std::string> parts;
  for (const auto& [dtype, count] : numbers) {
    if (count * 100 >= all) parts.push_back(fmt::format("{:.1f} M {}", double(count) / 1e6, dtype));
  }
  const bool wide = all != 0 && numbers["float32"] * 2 > all;
  const std::string kinds =
      parts.empty()
          ? ""
          : fmt::format(": {}{}", fmt::join(parts, ", "),
                        trained == all
                            ? ""
                            : fmt::format(", {:.1f} M of all trained", double(trained) / 1e6));
  add(causes, peak, wide ? "float32_parameters" : "parameters",
      (wide ? "parameters in float32" : "parameters") + kinds, found);
  add(causes, peak, "parameter_copies",
      facts.autocast.empty()
          ? "copies of parameters in another type or place"
          : fmt::format("copies of parameters in another type or place, as autocast keeps in {}",
                        facts.autocast),
      peak.take(Holder::parameter_copies));
}

// --- what training adds --------------------------------------------------------------------------

void add_gradients(Causes& causes, Peak& peak) {
  const ProgramFacts& facts = peak.facts();
  const WrapperFacts* const deepspeed = facts.wrapped_by("DeepSpeed");
  const bool whole = facts.world > 1 && (facts.wrapped_by("DDP") != nullptr ||
                                         (deepspeed != nullptr && deepspeed->stage <= 1));
  add(causes, peak, whole ? "unsharded_gradients" : "gradients",
      whole ? fmt::format("gradients, whole on each of {} ranks: nothing shards them", facts.world)
            : "gradients",
      peak.take(Holder::gradients));
  if (facts.wrapped_by("DDP") != nullptr) {
    add(causes, peak, "gradient_buckets", "DistributedDataParallel's buckets of gradients",
        peak.take(
            [](const HeldBlock&, const MemorySite& site) { return site.part == "distributed"; }));
  }
}

void add_optimizer(Causes& causes, Peak& peak) {
  const ProgramFacts& facts = peak.facts();
  const auto states = peak.take(Holder::optimizer_states);
  std::uint64_t numbers = 0;
  std::string names;
  for (const OptimizerFacts& one : facts.optimizers) {
    if (!one.on_gpu) continue;
    numbers += one.numbers;
    if (names.find(one.name) == std::string::npos) names += (names.empty() ? "" : ", ") + one.name;
  }
  std::string what = "states of the optimizer";
  if (!names.empty()) what = "states of " + names;
  std::uint64_t trained = 0;
  for (const ParameterFacts& group : facts.groups) trained += group.trained ? group.numbers : 0;
  // DeepSpeed leaves the optimizer tensors of nearly nothing, and steps others.
  if (numbers != 0 && 100 * numbers >= trained) {
    what += fmt::format(": {:.1f} bytes for each of {:.1f} M parameters trained",
                        double(sum_of(states)) / double(numbers), double(numbers) / 1e6);
  }
  add(causes, peak, "optimizer_states", what, states);
  add(causes, peak, "optimizer_step",
      "made while the optimizer makes its step (foreach makes lists of copies)",
      peak.take(Holder::optimizer_step));
}

// --- logits --------------------------------------------------------------------------------------

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::vector<std::string> parts;
  parts.reserve(shape.size());
  for (const std::uint64_t size : shape) parts.push_back(with_commas(size));
  return fmt::format("{}", fmt::join(parts, " x "));
}

bool about(std::uint64_t block, std::uint64_t bytes) {
  return block >= bytes && block < bytes + kRounding;
}

// The largest block as rows x width x 4 bytes: the shape that was seen where it is that one, else
// what follows from its size.
std::string logits_shape(const ProgramFacts& facts, std::uint64_t block, std::uint64_t& width) {
  for (const LossFacts& loss : facts.losses) {
    if (loss.shape.size() < 2 || loss.shape.back() < 2) continue;
    std::uint64_t numbers = 1;
    for (const std::uint64_t size : loss.shape) numbers *= size;
    width = loss.shape.back();
    for (const std::uint64_t each : {4, 2}) {
      if (!about(block, each * numbers)) continue;
      std::vector<std::uint64_t> shape = loss.shape;
      // Flattened for the loss; the batch is known from what was embedded.
      if (shape.size() == 2 && facts.embedded.size() == 2 &&
          facts.embedded[0] * facts.embedded[1] == shape[0]) {
        shape = {facts.embedded[0], facts.embedded[1], shape[1]};
      }
      return fmt::format("{} x {} bytes", shape_text(shape), each);
    }
  }
  if (width == 0) return {};
  for (const std::uint64_t each : {4, 2}) {  // of another length
    const std::uint64_t rows = block / (each * width);
    if (rows != 0 && about(block, rows * width * each)) {
      return fmt::format("{} x {} x {} bytes", with_commas(rows), with_commas(width), each);
    }
  }
  return {};
}

void add_logits(Causes& causes, Peak& peak) {
  const auto found = peak.take(Holder::loss);
  if (found.empty()) return;
  std::uint64_t largest = 0;
  for (const HeldBlock& block : found) largest = std::max(largest, block.bytes);
  const auto alike = std::count_if(found.begin(), found.end(), [largest](const HeldBlock& block) {
    return block.bytes + kRounding > largest;
  });
  std::uint64_t width = 0;
  const std::string shape = logits_shape(peak.facts(), largest, width);
  const bool wide = shape.ends_with(" x 4 bytes");
  const std::string each = fmt::format("{} of {}{}", alike, format_bytes(largest),
                                       shape.empty() ? "" : " (" + shape + ")");
  add(causes, peak, wide ? "float32_logits" : "logits",
      fmt::format("{}: {}",
                  wide ? "float32 logits, copies of them and their gradient" : "logits and loss",
                  each),
      found);
}

// --- several GPUs in one process -----------------------------------------------------------------

bool is_part(const MemorySite& site, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return site.part == name; });
}

void add_data_parallel(Causes& causes, Peak& peak) {
  const WrapperFacts* const wrapper = peak.facts().wrapped_by("DataParallel");
  if (wrapper == nullptr || wrapper->gpus.size() < 2) return;
  const auto not_told = [](const HeldBlock& block) {
    return block.holder != Holder::parameters && block.holder != Holder::gradients &&
           block.holder != Holder::loss;
  };
  add(causes, peak, "data_parallel_replicas",
      fmt::format("DataParallel: the model's replica on this GPU, one of {}, made anew each step",
                  wrapper->gpus.size()),
      peak.take([&](const HeldBlock& block, const MemorySite& site) {
        return not_told(block) && is_part(site, {"replicate", "broadcast_coalesced"});
      }));
  add(causes, peak, "data_parallel_gather",
      "DataParallel: outputs and gradients of all GPUs, gathered on this one",
      peak.take([&](const HeldBlock& block, const MemorySite& site) {
        return not_told(block) && is_part(site, {"gather", "reduce_add_coalesced"});
      }));
}

// --- beside what was allocated -------------------------------------------------------------------

void add_beside(Causes& causes, const Subject& as_is) {
  if (as_is.run == nullptr) return;
  const json& row = as_is.result();
  const json memory = member(row, "memory");
  const std::uint64_t lost = number(member(memory, "fragmentation_bytes"));
  if (lost != 0) {
    causes.push_back(
        {"fragmentation",
         fmt::format("external fragmentation with {}: reserved, and not allocated, at its {}",
                     as_is.run->allocator, member(memory, "at") == "peak" ? "peak" : "end"),
         lost, "", false});
  }
  const std::uint64_t outside = as_is.outside_bytes();
  if (outside != 0) {
    causes.push_back(
        {"context", "CUDA's context and libraries, outside any allocator", outside, "", false});
  }
}

}  // namespace

ProgramFacts Subject::facts() const { return facts_of(member(run->told[row], "program")); }

std::uint64_t Subject::outside_bytes() const {
  const std::uint64_t used = number(member(result(), "peak_used_bytes"));
  return used - std::min(used, number(member(result(), "peak_reserved_bytes")));
}

Subject subject_of(const FitsRun& run) {
  Subject best;
  for (std::size_t i = 0; i < run.rows.size(); ++i) {
    const json& row = run.rows[i];
    if (!member(row, "peak_allocated_bytes").is_number()) continue;
    const bool no = row["fits"] == false;
    const bool died_here = no && run.memory[i] && row["memory"]["at"] == "out of memory";
    const auto rank = [](const json& of, bool died) {
      return std::pair(died, number(member(of, "peak_allocated_bytes")));
    };
    if (best.run == nullptr) {
      best = {&run, i};
      continue;
    }
    const bool best_died =
        best.traced() != nullptr && best.result()["memory"]["at"] == "out of memory";
    if (rank(row, died_here) > rank(best.result(), best_died)) best = {&run, i};
  }
  return best;
}

Subject same_in(const FitsRun& run, const Subject& subject) {
  if (subject.run == nullptr) return {};
  // Process numbers differ, ranks and GPUs do not; without ranks, their order does not.
  const json& row = subject.result();
  for (std::size_t i = 0; i < run.rows.size(); ++i) {
    if (row["rank"].is_number() && run.rows[i]["rank"] == row["rank"] &&
        run.rows[i]["device"] == row["device"]) {
      return {&run, i};
    }
  }
  const bool there = !row["rank"].is_number() && subject.row < run.rows.size() &&
                     run.rows[subject.row]["device"] == row["device"];
  return there ? Subject{&run, subject.row} : subject_of(run);
}

std::vector<Cause> causes_of(const Subject& needed, const Subject& as_is) {
  Causes causes;
  if (needed.run == nullptr || needed.traced() == nullptr) {
    add_beside(causes, as_is);
    return causes;
  }
  Peak peak(*needed.traced(), needed.facts());
  add_frozen_float32(causes, peak);
  add_parameters(causes, peak);
  add_data_parallel(causes, peak);
  add_gradients(causes, peak);
  add_optimizer(causes, peak);
  add_logits(causes, peak);
  const std::uint64_t steps = number(member(needed.result(), "steps"));
  add(causes, peak, "activations",
      peak.facts().checkpointed ? "activations (some are computed again: checkpointing is used)"
      : steps == 0              ? "activations"
                                : "activations, all kept for the backward pass (no checkpointing)",
      peak.take(Holder::activations));
  add(causes, peak, "backward", "made by the backward pass", peak.take(Holder::backward));
  add(causes, peak, "buffers", "buffers of modules", peak.take(Holder::buffers));
  add(causes, peak, "inputs", "inputs, copied from the host", peak.take(Holder::inputs));
  add(causes, peak, "workspaces", "workspaces of cuBLAS", peak.take(Holder::workspaces));
  add(causes, peak, "other", "of what nobody told",
      peak.take([](const HeldBlock&, const MemorySite&) { return true; }));
  add_beside(causes, as_is);
  std::erase_if(causes, [&](const Cause& cause) { return cause.bytes * 100 < peak.allocated(); });
  std::stable_sort(causes.begin(), causes.end(), [](const Cause& a, const Cause& b) {
    return std::pair(!a.of_peak, b.bytes) < std::pair(!b.of_peak, a.bytes);
  });
  return causes;
}

}  // namespace gapless::tools
