// What one run leaves in its own folder, no other finds.
#include "tools/own_folder.h"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/temporary_folder.h"

namespace gapless::tools {
namespace {

using ::testing::ElementsAre;

TEST(OwnFolder, IsMadeWhereACommandNamesIt) {
  const TemporaryFolder place;
  const std::string own = place.path() / "own";
  EXPECT_THAT(with_own_folder({"python", "a.py", "--out={folder}/b", "{folder}:{folder}", "{fold}"},
                              place.path()),
              ElementsAre("python", "a.py", "--out=" + own + "/b", own + ":" + own, "{fold}"));
  EXPECT_TRUE(std::filesystem::is_directory(own));
}

TEST(OwnFolder, IsNotMadeWhereNoneIsWanted) {
  EXPECT_THAT(with_own_folder({"python", "-c", "f'{{folder}} {{folder}}{'"}, "/nowhere"),
              ElementsAre("python", "-c", "f'{folder} {folder}{'"));
  EXPECT_FALSE(std::filesystem::exists("/nowhere"));
}

}  // namespace
}  // namespace gapless::tools
