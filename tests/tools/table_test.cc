// Tables and paragraphs in the columns there are.
#include "tools/table.h"

#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/text_width.h"

namespace gapless::tools {
namespace {

using ::testing::ElementsAre;

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  for (const std::string& line : lines_of(text, 10000)) {
    widest = std::max(widest, columns_of(line));
  }
  return widest;
}

// A table of words: what is in it in any order of lines and blanks.
std::multiset<std::string> words_in(const std::string& text) {
  std::istringstream words(text);
  std::multiset<std::string> found;
  for (std::string word; words >> word;) {
    if (word.find_first_not_of('-') != std::string::npos) found.insert(word);
  }
  return found;
}

Table example(const std::string& name = "qwen-lora-varlen") {
  Table table({{"trace", Table::Align::left},
               {"allocator", Table::Align::left},
               {"peak allocated"},
               {"driver calls"},
               {"fits", Table::Align::left}});
  table.add({{name}, {"gapless"}, {"13.61GiB"}, {"11,040"}, {"yes", Colour::good}});
  table.add({{""}, {"native"}, {"13.61GiB"}, {"1,135"}, {"no", Colour::bad}});
  return table;
}

TEST(Text, WideLettersTakeTwoColumns) {
  EXPECT_EQ(columns_of("gapless"), 7U);
  EXPECT_EQ(columns_of("模型训练"), 8U);
  EXPECT_EQ(columns_of("e\u0301"), 1U);   // e and its accent
  EXPECT_EQ(columns_of("\xff\xfe"), 2U);  // no UTF-8
  EXPECT_EQ(padded("模型", 6, false), "模型  ");
  EXPECT_EQ(padded("模型", 6, true), "  模型");
}

TEST(Text, EndsWithItsLastColumns) {
  EXPECT_EQ(last_columns("gapless", 4), "less");
  EXPECT_EQ(last_columns("gapless", 9), "gapless");
  EXPECT_EQ(last_columns("模型训练", 5), "训练");
  EXPECT_EQ(last_columns("ae\u0301x", 1), "x");
  EXPECT_EQ(last_columns("x", 0), "");
}

TEST(Text, IsBrokenAtBlanksAndWithinLongWords) {
  EXPECT_THAT(lines_of("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(lines_of("one two three", 8), ElementsAre("one two", "three"));
  EXPECT_THAT(lines_of("in models/bert/bert.py:512", 14),
              ElementsAre("in", "models/bert/", "bert.py:512"));
  EXPECT_THAT(lines_of("/averylongname", 8), ElementsAre("/averylo", "ngname"));
  EXPECT_THAT(lines_of("one\ntwo", 80), ElementsAre("one", "two"));
  EXPECT_THAT(lines_of("/a/long/path.py:7", 8), ElementsAre("/a/long/", "path.py:", "7"));
  EXPECT_THAT(lines_of("模型训练", 5), ElementsAre("模型", "训练"));
  EXPECT_THAT(lines_of("", 5), ElementsAre(""));
}

TEST(Table, TakesTheColumnsItNeedsWhereThereIsNoLimit) {
  EXPECT_EQ(example().text(false, 0),
            "trace             allocator  peak allocated  driver calls  fits\n"
            "----------------  ---------  --------------  ------------  ----\n"
            "qwen-lora-varlen  gapless          13.61GiB        11,040  yes\n"
            "                  native           13.61GiB         1,135  no\n");
}

TEST(Table, WrapsItsHeadsFirst) {
  EXPECT_EQ(example().text(false, 60),
            "                                  peak  driver\n"
            "trace             allocator  allocated   calls  fits\n"
            "----------------  ---------  ---------  ------  ----\n"
            "qwen-lora-varlen  gapless     13.61GiB  11,040  yes\n"
            "                  native      13.61GiB   1,135  no\n");
}

TEST(Table, ThenTakesSeveralLinesForARow) {
  EXPECT_EQ(example().text(false, 40),
            "                                  peak\n"
            "trace             allocator  allocated\n"
            "    driver calls  fits\n"
            "--------------------------------------\n"
            "qwen-lora-varlen  gapless     13.61GiB\n"
            "          11,040  yes\n"
            "                  native      13.61GiB\n"
            "           1,135  no\n");
}

TEST(Table, LosesNothingInAnyWidth) {
  const std::string name = "模型-训练-with-a-name-that-is-longer-than-the-terminal-is-wide";
  const auto all = words_in(example("x").text(false, 0));
  for (std::size_t columns = 1; columns < 120; ++columns) {
    EXPECT_EQ(words_in(example("x").text(false, columns)), all) << columns;
    EXPECT_LE(widest_line(example(name).text(false, columns)), std::max<std::size_t>(columns, 20))
        << columns;
  }
}

TEST(Table, WrapsTextsOfColumnsThatMay) {
  Table table({{"key", Table::Align::left}, {"what it does", Table::Align::left, true}});
  table.add({{"slack"}, {"grow rather than make a window, a little"}});
  EXPECT_EQ(table.text(false, 32),
            "key    what it does\n"
            "-----  -------------------------\n"
            "slack  grow rather than make a\n"
            "       window, a little\n");
}

TEST(Table, ColoursEveryLineOfATextAndNothingElse) {
  Table table({{"verdict", Table::Align::left, true}});
  table.add({{"no: there is not enough memory", Colour::bad}});
  EXPECT_EQ(table.text(true, 20),
            "verdict\n"
            "--------------------\n"
            "\x1b[31mno: there is not\x1b[0m\n"
            "\x1b[31menough memory\x1b[0m\n");
}

TEST(Table, AlignsWideLetters) {
  Table table({{"trace", Table::Align::left}, {"n"}});
  table.add({{"模型"}, {"1"}});
  table.add({{"ab"}, {"2"}});
  EXPECT_EQ(table.text(false, 0),
            "trace  n\n"
            "-----  -\n"
            "模型   1\n"
            "ab     2\n");
}

}  // namespace
}  // namespace gapless::tools
