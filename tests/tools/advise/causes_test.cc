// Causes: told from blocks, parameters and losses, and never by a program's name.
#include "tools/advise/causes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/advise/recorded_program.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using simgpu::Holder;
using simgpu::MemorySite;
using ::testing::HasSubstr;
using ::testing::IsNull;
using ::testing::Not;
using ::testing::NotNull;

json parameter(const char* name, const char* dtype, bool trained, std::uint64_t numbers,
               std::uint64_t address) {
  return {{"name", name},     {"dtype", dtype},     {"trained", trained},
          {"device", "cuda"}, {"module", "Linear"}, {"numbers", numbers},
          {"bytes", numbers}, {"address", address}, {"shape", {numbers / 1024, 1024}}};
}

json group(const char* dtype, bool trained, std::uint64_t numbers) {
  return {{"dtype", dtype},     {"trained", trained}, {"device", "cuda"},
          {"module", "Linear"}, {"numbers", numbers}, {"bytes", numbers}};
}

TEST(Causes, NameFloat32ParametersOfAModelOfLowerPrecisionWithWhatMadeThem) {
  const json program = {
      {"parameters",
       {{"groups",
         {group("float32", false, 1 << 28), group("uint8", false, std::uint64_t{1} << 32)}},
        {"largest", {parameter("lm_head.weight", "float32", false, 1 << 28, 4096)}}}}};
  RecordedProgram run(program);
  run.site({Holder::unknown, "train.py:7", "peft/other.py:9",
            "peft.other.prepare_model_for_kbit_training", ""})
      .block(Holder::parameters, GiB, 0, 100, 4096, 1)
      .block(Holder::parameters, 2 * GiB, 0, 100, GiB)
      .peak(5, 3 * GiB);
  const auto causes = causes_of(run.subject(), {});
  const Cause* const wide = find(causes, "float32_frozen_parameters");
  ASSERT_THAT(wide, NotNull());
  EXPECT_EQ(wide->bytes, GiB);
  EXPECT_THAT(wide->what, HasSubstr("lm_head.weight (262144 x 1024)"));
  EXPECT_THAT(wide->what, HasSubstr("made so by prepare_model_for_kbit_training"));
  EXPECT_THAT(wide->line, HasSubstr("train.py:7, in peft/other.py:9"));
  ASSERT_THAT(find(causes, "parameters"), NotNull());
  EXPECT_EQ(find(causes, "parameters")->bytes, 2 * GiB);
}

TEST(Causes, SayNothingOfFloat32ParametersThatAreTrainedOrTheRule) {
  for (const bool trained : {true, false}) {
    const json program = {{"parameters",
                           {{"groups",
                             {group("float32", trained, 1 << 28),
                              group("bfloat16", false, trained ? 1 << 30 : 1 << 20)}},
                            {"largest", {parameter("w", "float32", trained, 1 << 28, 4096)}}}}};
    RecordedProgram run(program);
    run.block(Holder::parameters, GiB, 0, 100, 4096).peak(5, GiB);
    EXPECT_THAT(find(causes_of(run.subject(), {}), "float32_frozen_parameters"), IsNull())
        << trained;
  }
}

TEST(Causes, TellLogitsWithTheirShapeAndHowMany) {
  const std::uint64_t logits = std::uint64_t{4} * 2 * 512 * 50257;
  const json program = {
      {"losses", {{{"shape", {1024, 50257}}, {"dtype", "float32"}, {"bytes", logits}}}},
      {"embedded", {2, 512}}};
  RecordedProgram run(program);
  run.site({Holder::loss, "train.py:9", "", "", ""});
  for (int i = 0; i < 3; ++i) run.block(Holder::loss, logits + 512, 0, 100, 0, 1);
  run.peak(5, 3 * logits);
  const auto causes = causes_of(run.subject(), {});
  const Cause* const found = find(causes, "float32_logits");
  ASSERT_THAT(found, NotNull());
  EXPECT_THAT(found->what, HasSubstr("3 of 196.32 MiB (2 x 512 x 50,257 x 4 bytes)"));
  EXPECT_EQ(found->line, "train.py:9");
}

TEST(Causes, TellLogitsOfHalfPrecisionAsSuch) {
  const std::uint64_t logits = std::uint64_t{2} * 1024 * 50257;
  RecordedProgram run(
      json{{"losses", {{{"shape", {1024, 50257}}, {"dtype", "bfloat16"}, {"bytes", logits}}}}});
  run.block(Holder::loss, logits).peak(5, logits);
  const auto causes = causes_of(run.subject(), {});
  EXPECT_THAT(find(causes, "float32_logits"), IsNull());
  ASSERT_THAT(find(causes, "logits"), NotNull());
  EXPECT_THAT(find(causes, "logits")->what, HasSubstr("1,024 x 50,257 x 2 bytes"));
}

TEST(Causes, AreOfWhatIsLiveAtThePeak) {
  RecordedProgram run;
  run.block(Holder::activations, GiB, 0, 3).block(Holder::gradients, GiB, 4, 9).peak(5, GiB);
  const auto causes = causes_of(run.subject(), {});
  EXPECT_THAT(find(causes, "activations"), IsNull());
  EXPECT_THAT(find(causes, "gradients"), NotNull());
}

TEST(Causes, TellDataParallelsReplicasByTheirSites) {
  RecordedProgram run(json{{"wrappers", {{{"kind", "DataParallel"}, {"gpus", {0, 1}}}}}});
  run.site({Holder::unknown, "train.py:3", "", "", "replicate"})
      .block(Holder::unknown, GiB, 0, 100, 0, 1)
      .block(Holder::unknown, GiB)
      .peak(5, 2 * GiB);
  const auto causes = causes_of(run.subject(), {});
  ASSERT_THAT(find(causes, "data_parallel_replicas"), NotNull());
  EXPECT_EQ(find(causes, "data_parallel_replicas")->bytes, GiB);
  ASSERT_THAT(find(causes, "other"), NotNull());
  EXPECT_EQ(find(causes, "other")->bytes, GiB);
}

TEST(Causes, CallGradientsWholeWhereRanksShareThem) {
  for (const int stage : {1, 2}) {
    RecordedProgram run(
        json{{"world", 2}, {"wrappers", {{{"kind", "DeepSpeed"}, {"stage", stage}}}}});
    run.block(Holder::gradients, GiB).peak(5, GiB);
    const auto causes = causes_of(run.subject(), {});
    EXPECT_EQ(find(causes, "unsharded_gradients") != nullptr, stage == 1);
  }
}

TEST(Causes, StandBesideWhatIsOutsideTheAllocator) {
  RecordedProgram run;
  run.block(Holder::activations, GiB).peak(5, GiB);
  const auto causes = causes_of(run.subject(), run.subject());
  ASSERT_THAT(find(causes, "fragmentation"), NotNull());
  EXPECT_FALSE(find(causes, "fragmentation")->of_peak);
  EXPECT_EQ(find(causes, "context")->bytes, GiB);
  EXPECT_TRUE(causes.front().of_peak);
}

}  // namespace
}  // namespace gapless::tools
