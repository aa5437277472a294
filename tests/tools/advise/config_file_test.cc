// Configuration files: their kinds, and keys set in them with all else as it was.
#include "tools/advise/config_file.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/error.h"
#include "tests/support/scratch_folder.h"

namespace gapless::tools {
namespace {

using ::testing::HasSubstr;

std::string kind_of(const std::string& name, const std::string& text) {
  const ScratchFolder folder;
  std::ofstream(folder.file(name)) << text;
  const auto file = config_file(folder.file(name));
  return file ? name_of(file->kind) : "none";
}

TEST(ConfigFile, IsOfAKindByItsKeys) {
  EXPECT_EQ(kind_of("a.json", R"({"zero_optimization": {"stage": 2}})"), "DeepSpeed");
  EXPECT_EQ(kind_of("a.yaml", "distributed_type: MULTI_GPU\nmixed_precision: 'no'\n"),
            "accelerate");
  EXPECT_EQ(kind_of("a.yml", "per_device_train_batch_size: 8\n"), "Trainer");
  EXPECT_EQ(kind_of("a.json", R"({"gradient_checkpointing": true})"), "Trainer");
  EXPECT_EQ(kind_of("a.json", R"({"learning_rate": 1})"), "none");
  EXPECT_EQ(kind_of("a.json", "[1]"), "none");
  EXPECT_EQ(kind_of("a.yaml", "a: [1\n"), "none");
  EXPECT_EQ(kind_of("a.txt", "per_device_train_batch_size: 8\n"), "none");
}

TEST(ConfigFile, HasKeysSetWithAllElseAsItWas) {
  EXPECT_EQ(with_key("a.yaml", "a: 1  # one\nb:\n  c: x\n", "a", "2"), "a: 2  # one\nb:\n  c: x\n");
  EXPECT_EQ(with_key("a.yaml", "a: 1\nb:\n  c: x\n", "b.d", "true"),
            "a: 1\nb:\n  d: true\n  c: x\n");
  EXPECT_EQ(with_key("a.yaml", "a: 1", "z", "2"), "a: 1\nz: 2\n");
  EXPECT_EQ(with_key("a.json", R"({"a": {"b": 1}})", "a.c.d", "cpu"),
            "{\n  \"a\": {\n    \"b\": 1,\n    \"c\": {\n      \"d\": \"cpu\"\n    }\n  }\n}\n");
}

TEST(ConfigFile, RefusesWhatItCannotSet) {
  const auto error_of = [](const char* path, const char* text, const char* key) {
    try {
      with_key(path, text, key, "1");
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(error_of("a.yaml", "a: {b: 1}\n", "a.c"), HasSubstr("a.yaml: a.c"));
  EXPECT_THAT(error_of("a.json", R"({"a": 1})", "a.b"), HasSubstr("a.json: a.b"));
  EXPECT_THAT(error_of("a.json", R"({"a": [1]})", "a"), HasSubstr("several values"));
}

TEST(ConfigFile, ReadsValuesAsTheyAre) {
  const ConfigFile yaml{"a.yaml", "a: 8\nb: true\nc: 'no'\nd:\n  e: cpu\n", {}};
  EXPECT_EQ(yaml.value("a"), 8);
  EXPECT_EQ(yaml.value("b"), true);
  EXPECT_EQ(yaml.value("c"), "no");
  EXPECT_EQ(yaml.value("d.e"), "cpu");
  EXPECT_TRUE(yaml.value("d.f").is_null());
}

TEST(ConfigFile, ShowsLinesThatDiffer) {
  EXPECT_EQ(changed_lines("a\nb\nc\n", "a\nB\nc\nd\n"), "-b\n+B\n+d\n");
  EXPECT_EQ(changed_lines("a\n", "a\n"), "");
}

}  // namespace
}  // namespace gapless::tools
