// What a search may vary, and how the command and its files look then.
#include "tools/search/varied.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "tests/support/scratch_folder.h"
#include "tools/search/kept_results.h"
#include "tools/search/value_in_file.h"

namespace gapless::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Varied, RangesAndLists) {
  EXPECT_THAT(read_varied("batch-size=1:4").values, ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(read_varied("b=16:40:8").values, ElementsAre("16", "24", "32", "40"));
  EXPECT_THAT(read_varied("b=1:6:2").numbers, ElementsAre(1, 3, 5));
  EXPECT_THAT(read_varied("b=8,16,64").numbers, ElementsAre(8, 16, 64));
  EXPECT_THAT(read_varied("b=0.5,0.75").numbers, ElementsAre(0.5, 0.75));
  EXPECT_FALSE(read_varied("precision=fp32,bf16").ascends());
  EXPECT_FALSE(read_varied("b=8,4").ascends());
  EXPECT_EQ(read_varied("a.yaml:x.y=1:2").file, "a.yaml");
  EXPECT_EQ(read_varied("a.yaml:x.y=1:2").key, "x.y");
  EXPECT_EQ(read_varied("b=1:4").json_value(2), 3);
  EXPECT_EQ(read_varied("b=fp32,bf16").json_value(1), "bf16");
}

TEST(Varied, WhatIsNoRangeIsToldWithItsText) {
  for (const auto& [text, cause] : std::vector<std::pair<std::string, std::string>>{
           {"b", "expected NAME=MIN:MAX"},
           {"=1:2", "expected NAME=MIN:MAX"},
           {"b=4:1", "from 4 to 1 there is nothing"},
           {"b=1:8:0", "a step of 0 leads nowhere"},
           {"b=1:8:-1", "a step of -1 leads nowhere"},
           {"b=1:x", "\"x\" is no whole number"},
           {"b=1:2.5", "\"2.5\" is no whole number"},
           {"b=1:2:3:4", "a range is MIN:MAX or MIN:MAX:STEP"},
           {"b=-9223372036854775808:9223372036854775807", "more than 100000 settings"},
           {"b=", "an empty value"},
           {"b=1,,2", "an empty value"},
           {"b=1,1", "1 is there twice"},
           {"a b=1:2", "\"a b\" cannot be a name"},
           {"x.json:=1:2", "expected FILE:KEY"}}) {
    const std::string error = error_of([&] { (void)read_varied(text); });
    EXPECT_THAT(error, HasSubstr("--vary " + text + ": "));
    EXPECT_THAT(error, HasSubstr(cause));
  }
}

VariedCommand command(std::vector<std::string> words, const std::vector<std::string>& vary) {
  std::vector<Varied> varied;
  for (const std::string& text : vary) varied.push_back(read_varied(text));
  return {std::move(words), std::move(varied)};
}

TEST(VariedCommand, PutsValuesInTheirPlaces) {
  const VariedCommand both =
      command({"train", "--b={b}", "{b}x{seq-len}", "{}", "{ b }", "{\"a\": 1}", "{{b}}", "${x"},
              {"b=1:8", "seq-len=128,256"});
  EXPECT_THAT(both.with({3, 1}),
              ElementsAre("train", "--b=4", "4x256", "{}", "{ b }", "{\"a\": 1}", "{b}", "${x"));
  EXPECT_EQ(text_of(both.varied(), {3, 1}), "b 4, seq-len 256");
}

TEST(VariedCommand, NamesThatAreNotThereAreErrors) {
  EXPECT_THAT(error_of([] {
                command({"train", "--b", "8"}, {"b=1:8"});
              }),
              HasSubstr("the command has no {b}"));
  EXPECT_THAT(error_of([] {
                command({"train", "{b}", "{batch}"}, {"b=1:8"});
              }),
              HasSubstr("the command has {batch}, and nothing varies it"));
  EXPECT_THAT(error_of([] {
                command({"train", "{b}"}, {"b=1:8", "b=1:9"});
              }),
              HasSubstr("varied twice"));
}

class Files : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    write_file(folder.file(name), text);
    return folder.file(name);
  }
  ScratchFolder folder;
};

TEST_F(Files, ACopyHasTheValueAndTheFileIsAsItWas) {
  const std::string text = "a: 1 # one\ntrainer:\n  batch: 8\n  lr: 1e-4\n";
  const std::string yaml = file("train.yaml", text);
  const VariedCommand varied = command({"train", "--config=" + yaml, yaml, "{n}"},
                                       {yaml + ":trainer.batch=1:64", yaml + ":a=1,2", "n=1,2"});
  const auto words = varied.with({31, 1, 0}, folder.file("probe"));
  const std::string copy = folder.file("probe/file0/train.yaml");
  EXPECT_THAT(words, ElementsAre("train", "--config=" + copy, copy, "1"));
  EXPECT_EQ(read_file(copy), "a: 2 # one\ntrainer:\n  batch: 32\n  lr: 1e-4\n");
  EXPECT_EQ(read_file(yaml), text);
  EXPECT_THAT(varied.with({31, 1, 0}), ElementsAre("train", "--config=" + yaml, yaml, "1"));
}

TEST_F(Files, AProbesOwnFolderIsInItsPlace) {
  const VariedCommand varied = command({"train", "{b}", "--out={folder}"}, {"b=1:8"});
  EXPECT_THAT(varied.with({0}), ElementsAre("train", "1", "--out={folder}"));
  EXPECT_THAT(varied.with({0}, folder.path()),
              ElementsAre("train", "1", "--out=" + folder.file("own")));
  const VariedCommand named = command({"train", "{folder}"}, {"folder=a,b"});
  EXPECT_THAT(named.with({1}, folder.path()), ElementsAre("train", "b"));
}

TEST_F(Files, WhatCannotBeVariedIsTold) {
  const std::string yaml = file("train.yaml", "a: 1\n");
  EXPECT_THAT(error_of([&] {
                command({"train", yaml}, {yaml + ":b=1:8"});
              }),
              HasSubstr("train.yaml: b: there is no such key"));
  EXPECT_THAT(error_of([&] { command({"train"}, {yaml + ":a=1:8"}); }),
              HasSubstr("the command does not name " + yaml));
  EXPECT_THAT(error_of([&] { command({"train"}, {"/nowhere.json:a=1:8"}); }),
              HasSubstr("/nowhere.json"));
  const std::string other = file("train.ini", "a = 1\n");
  EXPECT_THAT(error_of([&] {
                command({"train", other}, {other + ":a=1:8"});
              }),
              HasSubstr(".json, .toml, .yaml and .yml"));
}

TEST(ValueInFile, YamlKeepsEverythingElse) {
  const auto changed = [](const std::string& text, const std::string& key,
                          const std::string& value) {
    return with_value("f.yaml", text, key, value);
  };
  EXPECT_EQ(changed("a: 8\n", "a", "16"), "a: 16\n");
  EXPECT_EQ(changed("a: 8", "a", "16"), "a: 16");
  EXPECT_EQ(changed("# ä\na:   8   # per GPU\nb: '016'\n", "a", "16"),
            "# ä\na:   16   # per GPU\nb: '016'\n");
  EXPECT_EQ(changed("p: \"fp#32\"  # c\n", "p", "bf16"), "p: bf16  # c\n");
  EXPECT_EQ(changed("t: {batch: 8, list: [1, 2]}\n", "t.list.1", "16"),
            "t: {batch: 8, list: [1, 16]}\n");
  EXPECT_EQ(changed("t: {batch: 8, x: 1}\n", "t.batch", "9"), "t: {batch: 9, x: 1}\n");
  EXPECT_EQ(changed("l:\n- b: 1\n- b: 2\n", "l.1.b", "3"), "l:\n- b: 1\n- b: 3\n");
  EXPECT_EQ(changed("a.b: 1\na:\n  b: 2\n", "a.b", "3"), "a.b: 3\na:\n  b: 2\n");
  EXPECT_EQ(changed("a: 8\r\nb: 1\r\n", "a", "16"), "a: 16\r\nb: 1\r\n");
}

TEST(ValueInFile, WhatWouldChangeMoreIsRefused) {
  const auto refused = [](const std::string& text, const std::string& key) {
    return error_of([&] { (void)with_value("f.yaml", text, key, "16"); });
  };
  EXPECT_THAT(refused("a: &x 8\nb: *x\n", "b"), HasSubstr("f.yaml: b: "));
  EXPECT_THAT(refused("a: |\n  8\n  9\n", "a"), HasSubstr("cannot be replaced"));
  EXPECT_THAT(refused("a:\n  b: 1\n", "a"), HasSubstr("it has several values"));
  EXPECT_THAT(refused("a:\n", "a"), HasSubstr("it has no value"));
  EXPECT_THAT(refused("a: 1\n---\na: 2\n", "a"), HasSubstr("2 documents"));
  EXPECT_THAT(refused("a: [1\n", "a"), HasSubstr("f.yaml: "));
  EXPECT_THAT(refused("", "a"), HasSubstr("f.yaml: "));
  EXPECT_THAT(refused("a: 1\n", "a.b"), HasSubstr("no such key"));
}

TEST(ValueInFile, TomlKeepsEverythingElse) {
  const std::string text =
      "# ä\ntitle = \"a = 1\"\n\n[training]  # of it\nlocal_batch_size = 8   # per GPU\n"
      "mixed = \"bf16\"\nlens = [ 1, 2 ]\n\"a.b\" = { c = 1e-4, \"größe\" = true }\n[[job]]\nn = "
      "1\n[[job]]\n"
      "n = 2\n";
  const auto changed = [&](const std::string& key, const std::string& value) {
    return with_value("f.toml", text, key, value);
  };
  const auto with = [&](const std::string& old, const std::string& replaced) {
    std::string all = text;
    return all.replace(all.find(old), old.size(), replaced);
  };
  EXPECT_EQ(changed("training.local_batch_size", "16"), with("= 8 ", "= 16 "));
  EXPECT_EQ(changed("training.mixed", "fp\"16"), with("\"bf16\"", "\"fp\\\"16\""));
  EXPECT_EQ(changed("training.mixed", "16"), with("\"bf16\"", "\"16\""));  // a text stays one
  EXPECT_EQ(changed("training.lens.1", "64"), with("2 ]", "64 ]"));
  EXPECT_EQ(changed("training.a.b.c", "2.5"), with("1e-4", "2.5"));
  EXPECT_EQ(changed("training.a.b.größe", "false"), with("true", "false"));
  EXPECT_EQ(changed("training.local_batch_size", "auto"), with("= 8 ", "= \"auto\" "));
  EXPECT_EQ(changed("job.1.n", "3"), with("n = 2", "n = 3"));
  for (const auto& [key, cause] : std::vector<std::pair<std::string, std::string>>{
           {"q", "no such key"}, {"job.2", "no such key"}, {"training", "several values"}}) {
    EXPECT_THAT(error_of([&] { (void)changed(key, "1"); }), HasSubstr("f.toml: " + key + ": "));
    EXPECT_THAT(error_of([&] { (void)changed(key, "1"); }), HasSubstr(cause));
  }
  EXPECT_THAT(error_of([&] { (void)with_value("f.toml", "a = 1\nb = \n", "a", "1"); }),
              HasSubstr("f.toml: line 2: "));
}

TEST(ValueInFile, Json) {
  const std::string text = R"({"z": 1, "a": {"b": [8, {"c": "x"}]}, "batch": "auto"})";
  const auto changed = [&](const std::string& key, const std::string& value) {
    return nlohmann::ordered_json::parse(with_value("f.json", text, key, value));
  };
  EXPECT_EQ(changed("a.b.0", "16")["a"]["b"][0], 16);
  EXPECT_EQ(changed("a.b.1.c", "bf16")["a"]["b"][1]["c"], "bf16");
  EXPECT_EQ(changed("batch", "4").dump(), R"({"z":1,"a":{"b":[8,{"c":"x"}]},"batch":4})");
  for (const auto& [key, cause] : std::vector<std::pair<std::string, std::string>>{
           {"q", "no such key"}, {"a.b.2", "no such key"}, {"a", "several values"}}) {
    EXPECT_THAT(error_of([&] { (void)with_value("f.json", text, key, "1"); }), HasSubstr(cause));
  }
  EXPECT_THAT(error_of([&] { (void)with_value("f.json", "{", "a", "1"); }), HasSubstr("f.json: "));
}

TEST_F(Files, ResultsAreKeptForWhatTheyAreOf) {
  const std::string path = folder.file("found.json");
  const nlohmann::json of = {{"command", {"train", "\xff"}}, {"gpus", "16GiB"}};
  ProbeResult result;
  result.probed = Probed::fits;
  result.verdict = "yes";
  result.rows = {{{"peak_allocated_bytes", 5}}};
  KeptResults(path).keep(of, result);
  KeptResults again(path);
  ASSERT_TRUE(again.find(of));
  EXPECT_EQ(again.find(of)->probed, Probed::fits);
  EXPECT_TRUE(again.find(of)->kept);
  EXPECT_EQ(again.find(of)->rows, result.rows);
  EXPECT_FALSE(again.find({{"command", {"train"}}, {"gpus", "16GiB"}}));
  // What is not known may be known the next time.
  ProbeResult unknown;
  again.keep({{"gpus", "8GiB"}}, unknown);
  EXPECT_FALSE(KeptResults(path).find({{"gpus", "8GiB"}}));
}

TEST_F(Files, OthersFilesAreNotTakenForResults) {
  for (const std::string text :
       {"{}", "[]", "{\"gapless search\": 1}", "x", "{\"gapless search\": 1, \"probes\": [{}]}"}) {
    const std::string path = file("notes.json", text);
    EXPECT_THAT(error_of([&] { KeptResults kept(path); }), HasSubstr("notes.json"));
    EXPECT_EQ(read_file(path), text);
  }
}

TEST_F(Files, AFileThatHasChangedIsAnother) {
  const std::string path = file("train.py", "one");
  const auto before = FileMarks().of({"python", path, "--x=" + path, "/nowhere"});
  EXPECT_EQ(before.size(), 1U);
  write_file(path, "two");
  EXPECT_NE(FileMarks().of({path}), before);
  write_file(path, "one");
  EXPECT_EQ(FileMarks().of({path}), before);
}

}  // namespace
}  // namespace gapless::tools
