// A folder of its own for each run of a program: what one run leaves there, no other finds. It goes
// with the run.
//
//   gapless search ... -- python train.py --out {folder} --batch-size {batch-size}
//
//     python train.py --out /tmp/gapless.aB3/own --batch-size 1
//     python train.py --out /tmp/gapless.x9K/own --batch-size 16
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gapless::tools {

/// What stands for it in a command; {{folder}} is {folder} itself, but in a search.
inline constexpr std::string_view kOwnFolder = "{folder}";
inline constexpr const char* kOwnFolderHelp =
    "In the command {folder} stands for a folder of its own for each run, which\n"
    "goes with it: python train.py --output-dir {folder}. What one run leaves there,\n"
    "no other finds.";

/// The command with a folder inside `place` wherever it names its own, which is made then.
std::vector<std::string> with_own_folder(std::vector<std::string> words,
                                         const std::filesystem::path& place);

}  // namespace gapless::tools
