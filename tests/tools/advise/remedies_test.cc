// Remedies: estimates by the trace, what is tried and what not, in the order of what is lost.
#include "tools/advise/remedies.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/advise/recorded_program.h"
#include "tools/advise/room.h"
#include "tools/advise/settings.h"
#include "tools/advise/what_if.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using simgpu::HeldBlock;
using simgpu::Holder;
using ::testing::HasSubstr;
using ::testing::IsNull;
using ::testing::NotNull;

TEST(WhatIf, FindsThePeakWhereItIsThen) {
  RecordedProgram run;
  run.block(Holder::activations, 3 * GiB, 0, 5).block(Holder::loss, 4 * GiB, 5, 9);
  EXPECT_EQ(peak_if(run.blocks(), [](const HeldBlock&) { return 1.0; }), 4 * GiB);
  EXPECT_EQ(
      peak_if(run.blocks(),
              [](const HeldBlock& block) { return block.holder == Holder::loss ? 0.25 : 1.0; }),
      3 * GiB);
  EXPECT_EQ(live_at(run.blocks(), 5).size(), 1U);  // what ends there is gone
}

json trained_program() {
  return {{"optimizers",
           {{{"class", "AdamW"},
             {"library", "torch"},
             {"on_gpu", true},
             {"states", {{"cuda:float32", 2 * GiB}}}}}},
          {"embedded", {8, 512}},
          {"arguments",
           {{{"option", "--batch-size"},
             {"options", {"--batch-size", "-b"}},
             {"takes_value", true},
             {"value", 8}}}}};
}

TEST(Remedies, HaveBatchesThatAreEstimatedToFitAndAnOptionForThem) {
  RecordedProgram run(trained_program());
  // 16 GiB, one of them the context's: batches of 8 take 21 GiB, of 4 take 11.
  run.block(Holder::activations, 20 * GiB).block(Holder::parameters, GiB).peak(0, 21 * GiB);
  const Settings settings({"python", "train.py"}, run.subject().facts());
  const auto remedies = remedies_of(run.subject(), run.subject(), settings);
  const Remedy* const batch = find(remedies, "batch");
  ASSERT_THAT(batch, NotNull());
  EXPECT_EQ(batch->estimate->allocated_bytes, 11 * GiB);
  EXPECT_FALSE(batch->estimate->at_best);
  Attempt attempt;
  attempt.command = {"python", "train.py"};
  batch->change(attempt);
  EXPECT_EQ(shell_text(attempt.command), "python train.py --batch-size 4");
}

TEST(Remedies, AreOrderedByWhatIsLost) {
  RecordedProgram run(trained_program());
  run.block(Holder::activations, 20 * GiB)
      .block(Holder::optimizer_states, 2 * GiB)
      .peak(0, 22 * GiB);
  const Settings settings({"python", "train.py"}, run.subject().facts());
  const auto remedies = remedies_of(run.subject(), run.subject(), settings);
  EXPECT_TRUE(std::is_sorted(remedies.begin(), remedies.end(),
                             [](const Remedy& a, const Remedy& b) { return a.lost < b.lost; }));
  EXPECT_EQ(remedies.front().id, "allocator");
  const Remedy* const states = find(remedies, "8bit-optimizer");
  ASSERT_THAT(states, NotNull());
  EXPECT_EQ(states->estimate->allocated_bytes, 20 * GiB + GiB / 2);
  EXPECT_FALSE(states->change);
  EXPECT_FALSE(states->why_not.empty());
  const Remedy* const paged = find(remedies, "paged-optimizer");
  ASSERT_THAT(paged, NotNull());
  EXPECT_EQ(paged->lost, Lost::time);
  EXPECT_EQ(paged->estimate->allocated_bytes, 20 * GiB);
  const Remedy* const checkpointing = find(remedies, "checkpointing");
  ASSERT_THAT(checkpointing, NotNull());
  EXPECT_TRUE(checkpointing->estimate->at_best);
  for (const Remedy& remedy : remedies) EXPECT_FALSE(remedy.trial.has_value());
}

TEST(Remedies, HaveTheOptimizersThatTheOptionTakes) {
  json program = trained_program();
  program["arguments"].push_back(
      {{"option", "--optim"},
       {"options", {"--optim"}},
       {"takes_value", true},
       {"value", "adamw_torch"},
       {"choices", {"adamw_torch", "adamw_torch_8bit", "paged_adamw_32bit", "adamw_bnb_8bit"}}});
  const auto with = [&program](const char* id) {
    RecordedProgram run(program);
    run.block(Holder::activations, 20 * GiB)
        .block(Holder::optimizer_states, 2 * GiB)
        .peak(0, 22 * GiB);
    const Settings settings({"python", "train.py"}, run.subject().facts());
    const auto remedies = remedies_of(run.subject(), run.subject(), settings);
    const Remedy* const found = find(remedies, id);
    return found == nullptr ? std::string() : found->how;
  };
  EXPECT_THAT(with("paged-optimizer"), HasSubstr("--optim adamw_torch -> paged_adamw_32bit"));
  EXPECT_THAT(with("8bit-optimizer"), HasSubstr("--optim adamw_torch -> adamw_bnb_8bit"));
  program["optimizers"][0]["class"] = "PagedAdamW";
  EXPECT_EQ(with("paged-optimizer"), "");
}

TEST(Remedies, LeaveOutWhatIsDoneOrWouldBeNothing) {
  json program = trained_program();
  program["checkpointed"] = true;
  RecordedProgram run(program);
  run.block(Holder::activations, 20 * GiB)
      .block(Holder::optimizer_states, 20 * MiB)
      .peak(0, 20 * GiB);
  const Settings settings({"python", "train.py"}, run.subject().facts());
  const auto remedies = remedies_of(run.subject(), run.subject(), settings);
  EXPECT_THAT(find(remedies, "checkpointing"), IsNull());
  EXPECT_THAT(find(remedies, "8bit-optimizer"), IsNull());
  EXPECT_THAT(find(remedies, "loss"), IsNull());
  EXPECT_THAT(find(remedies, "zero-3"), IsNull());  // of one rank
}

// Groups of parameters on the GPU, as the watch tells them.
json parameters(std::initializer_list<std::tuple<const char*, bool, std::uint64_t>> groups) {
  json all = json::array();
  for (const auto& [dtype, trained, bytes] : groups) {
    all.push_back({{"dtype", dtype},
                   {"trained", trained},
                   {"device", "cuda"},
                   {"module", "Linear"},
                   {"numbers", bytes / 2},
                   {"bytes", bytes}});
  }
  return {{"groups", all}, {"largest", json::array()}};
}

TEST(Remedies, HaveFrozenParametersInHalfPrecision) {
  const auto peak = [](const json& groups) -> std::pair<std::uint64_t, std::string> {
    json program = trained_program();
    program["parameters"] = groups;
    RecordedProgram run(program);
    run.block(Holder::parameters, 10 * GiB).block(Holder::activations, 10 * GiB).peak(0, 20 * GiB);
    const Settings settings({"python", "train.py"}, run.subject().facts());
    const auto remedies = remedies_of(run.subject(), run.subject(), settings);
    const Remedy* const half = find(remedies, "half-frozen");
    if (half == nullptr) return {};
    return {half->estimate->allocated_bytes, half->how};
  };
  // A base that was loaded as float32; and an embedding that something turned to it.
  const auto base = peak(parameters({{"float32", false, 8 * GiB}, {"float32", true, 2 * GiB}}));
  EXPECT_EQ(base.first, 16 * GiB);
  EXPECT_THAT(base.second, HasSubstr("from_pretrained(..., dtype=torch.bfloat16)"));
  const auto made = peak(parameters({{"bfloat16", false, 8 * GiB}, {"float32", false, 2 * GiB}}));
  EXPECT_EQ(made.first, 19 * GiB);
  EXPECT_THAT(made.second, HasSubstr("cast them back"));
  EXPECT_EQ(peak(parameters({{"bfloat16", false, 8 * GiB}, {"float32", true, 2 * GiB}})).first, 0U);
  EXPECT_EQ(peak(parameters({{"float32", true, 10 * GiB}})).first, 0U);
}

TEST(Remedies, HaveALossWithoutLogitsWhereAHeadMadeThem) {
  for (const bool head : {true, false}) {
    json program = trained_program();
    program["losses"] = {{{"shape", {4096, 50257}}, {"dtype", "float32"}, {"bytes", 4 * GiB}}};
    program["parameters"] = {{"largest",
                              {{{"name", "head"},
                                {"shape", {head ? 50257 : 768, 768}},
                                {"dtype", "float32"},
                                {"device", "cuda"}}}}};
    RecordedProgram run(program);
    run.block(Holder::loss, 4 * GiB)
        .block(Holder::loss, 4 * GiB)
        .block(Holder::parameters, GiB)
        .peak(0, 9 * GiB);
    const Settings settings({"python", "train.py"}, run.subject().facts());
    const auto remedies = remedies_of(run.subject(), run.subject(), settings);
    ASSERT_EQ(find(remedies, "loss") != nullptr, head);
    if (head) {
      EXPECT_EQ(find(remedies, "loss")->estimate->allocated_bytes, GiB);
    }
  }
}

TEST(Remedies, KnowNoBatchOfAProgramThatTellsNone) {
  for (const bool trains : {true, false}) {
    json program = json::object();
    if (trains) program["optimizers"] = trained_program()["optimizers"];
    RecordedProgram run(program);
    run.block(Holder::activations, 20 * GiB).peak(0, 20 * GiB);
    const Settings settings({"python", "train.py"}, run.subject().facts());
    const auto remedies = remedies_of(run.subject(), run.subject(), settings);
    ASSERT_EQ(find(remedies, "batch") != nullptr, trains);
    if (trains) {
      EXPECT_FALSE(find(remedies, "batch")->change);
    }
  }
}

TEST(Remedies, AreNoneOfWhatWasNotTraced) {
  const Settings settings({"python", "train.py"}, {});
  EXPECT_TRUE(remedies_of({}, {}, settings).empty());
}

TEST(Room, KeepsNamesAndCounts) {
  EXPECT_EQ(with_room("16GiB"), "1024GiB");
  EXPECT_EQ(with_room("A100,2x16GiB"), "A100:1024GiB,2x1024GiB");
  EXPECT_EQ(with_room("3xRTX 4090:20GiB, T4"), "3xRTX 4090:1024GiB,T4:1024GiB");
}

}  // namespace
}  // namespace gapless::tools
