// RemedyMaker: all remedies for a program, with what they would save by its trace.
//
//   for nothing   remedies_for_nothing.cc   allocators, a loss without logits, a fused step
//   for time      remedies_for_time.cc      smaller batches, checkpointing, ZeRO and offload
//   for quality   remedies_for_quality.cc   fewer bits, shorter inputs, adapters
//
// Each looks whether it applies and is worth a line, and adds itself, with what changes a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/advise/remedies.h"
#include "tools/advise/settings.h"

namespace gapless::tools {

class RemedyMaker {
 public:
  RemedyMaker(const Subject& needed, const Subject& as_is, const Settings& settings);

  /// The least that is lost first.
  std::vector<Remedy> all();

 private:
  void allocators();
  void loss();
  void fused();
  void data_parallel();
  void max_split();
  void batch();
  // `known`: how large batches are; 0: not known.
  [[nodiscard]] Remedy batch_in(std::uint64_t parts, std::uint64_t known,
                                const std::optional<SettingPlace>& place) const;
  void checkpointing();
  void zero();
  void paged_optimizer();
  void bucket();
  void precision();
  void frozen_in_half();
  void eight_bit_optimizer();
  void length();
  [[nodiscard]] Remedy length_in(std::uint64_t parts, std::uint64_t known,
                                 const std::optional<SettingPlace>& place) const;
  void lora();
  void weights_in_few_bits();

  // Whether what was estimated is worth a line: a hundredth of the peak.
  [[nodiscard]] bool is_worth(std::uint64_t estimate) const;
  [[nodiscard]] bool trains() const { return !facts_.optimizers.empty(); }
  /// The peak where batches are so much smaller, or shorter.
  [[nodiscard]] std::uint64_t peak_with_batch(double share) const;
  Remedy& add(const char* id, const std::string& what, Lost lost, const std::string& loses,
              const std::string& how);
  // Sets an option, or a value in a file, in the run to be tried.
  void by_setting(Remedy& remedy, Role role, const std::string& value) const;
  // The same with an optimizer (Settings::optimizer_with).
  void by_optimizer(Remedy& remedy, const std::vector<std::string>& parts,
                    const std::string& trainers) const;

  const std::vector<simgpu::HeldBlock>& blocks_;
  ProgramFacts facts_;
  const Settings& settings_;
  Subject as_is_;
  std::uint64_t peak_;
  std::uint64_t usable_ = 0;
  std::vector<Remedy> made_;
};

}  // namespace gapless::tools
