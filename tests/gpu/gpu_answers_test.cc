// The real driver's answers against the simulated GPU's, call by call: where they differ the
// simulated one is to be corrected.
//
// GAPLESS_GPU_ANSWERS names a file to which each answer is added, as a line of JSON, before and
// after the call.
#include <fstream>
#include <map>

#include <fmt/format.h>

#include "allocator/base/json_text.h"
#include "tests/gpu/answers.h"
#include "tests/gpu/gpu.h"

namespace gapless {
namespace testing {

void PrintTo(const NamedScript& script, std::ostream* out) { *out << script.name; }

}  // namespace testing
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

// "cuMemMap, a page", and "cuMemMap, a page 2" where that was asked before. A call as it is made
// and as it was answered are one question.
class Questions {
 public:
  std::string name(const Answer& answer) {
    const std::string asked = answer.call + (answer.with.empty() ? "" : ", " + answer.with);
    if (answer.said.empty() || asked != open_) ++times_[asked];
    open_ = answer.said.empty() ? asked : "";
    const int times = times_[asked];
    return times == 1 ? asked : fmt::format("{} {}", asked, times);
  }

 private:
  std::string open_;  // made and not answered
  std::map<std::string, int> times_;
};

class GpuAnswers : public Gpu, public ::testing::WithParamInterface<NamedScript> {
 protected:
  [[nodiscard]] Script script_on(Driver& on, Graphs& graphs, Script::Tell tell) const {
    return {on, graphs, properties, work_takes_time, std::move(tell)};
  }
};

TEST_P(GpuAnswers, AreTheSimulatedOnes) {
  simgpu::SimDriver simulated({.devices = {{.total_bytes = properties.total_bytes,
                                            .granularity_bytes = page,
                                            .host_bytes = properties.can_map_host ? 64 * GiB : 0,
                                            .has_fabric = properties.can_share_fabric}},
                               .keep_contents = true});
  std::string error;
  const auto simulated_graphs = Graphs::of(simulated, error);
  const auto graphs = Graphs::of(*driver, error);
  ASSERT_TRUE(graphs) << error;

  std::map<std::string, Answer> expected;
  Questions of_simulated;
  Script of_the_simulated = script_on(simulated, *simulated_graphs, [&](const Answer& answer) {
    expected[of_simulated.name(answer)] = answer;
  });
  GetParam().run(of_the_simulated);

  const char* const path = std::getenv("GAPLESS_GPU_ANSWERS");
  std::ofstream file;
  if (path != nullptr) file.open(path, std::ios::app);
  std::size_t asked = 0;
  Questions of_real;
  Script of_the_real = script_on(*driver, *graphs, [&](const Answer& answer) {
    const std::string question = of_real.name(answer);
    const auto found = expected.find(question);
    const bool is_known = found != expected.end();
    const bool is_answer = !answer.said.empty();
    if (file.is_open()) {
      const nlohmann::json row = {
          {"script", GetParam().name},
          {"asked", question},
          {"simulated", is_known ? nlohmann::json(found->second.said) : nullptr},
          {"real", is_answer ? nlohmann::json(answer.said) : nullptr},
          {"same_kind", is_known && found->second.kind == answer.kind && !answer.kind.empty()}};
      file << json_text(row)
           << std::endl;  // NOLINT(performance-avoid-endl): it is to be there if the call kills us
    }
    if (!is_answer) return;
    ++asked;
    EXPECT_EQ(answer.said, is_known ? found->second.said : "(not asked)") << question;
  });
  GetParam().run(of_the_real);
  EXPECT_EQ(asked, expected.size());
}

std::string name_of_script(const ::testing::TestParamInfo<NamedScript>& test) {
  return test.param.name;
}
INSTANTIATE_TEST_SUITE_P(Scripts, GpuAnswers, ::testing::ValuesIn(scripts(false)), name_of_script);
INSTANTIATE_TEST_SUITE_P(WildScripts, GpuAnswers, ::testing::ValuesIn(scripts(true)),
                         name_of_script);

}  // namespace
}  // namespace gapless
