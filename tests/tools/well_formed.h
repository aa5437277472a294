// Pictures and pages as a parser sees them: every tag that is opened is closed, in order.
#pragma once

#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gapless::testing {

inline void expect_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-zA-Z]+)([^<>]*?)(/?)>");
  for (auto found = std::sregex_iterator(xml.begin(), xml.end(), tag);
       found != std::sregex_iterator(); ++found) {
    const std::string name = (*found)[2];
    if ((*found)[1].length() != 0) {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), name);
      open.pop_back();
    } else if ((*found)[4].length() == 0 && name != "meta") {
      open.push_back(name);
    }
  }
  EXPECT_THAT(open, ::testing::IsEmpty());
}

}  // namespace gapless::testing
