#include "tools/own_folder.h"

namespace gapless::tools {

std::vector<std::string> with_own_folder(std::vector<std::string> words,
                                         const std::filesystem::path& place) {
  const std::filesystem::path own = place / "own";
  for (std::string& word : words) {
    for (std::size_t at = word.find(kOwnFolder); at != std::string::npos;
         at = word.find(kOwnFolder, at)) {
      const std::size_t end = at + kOwnFolder.size();
      if (at != 0 && word[at - 1] == '{' && end < word.size() && word[end] == '}') {
        word.erase(end, 1).erase(at - 1, 1);
        at = end - 1;
        continue;
      }
      std::filesystem::create_directory(own);
      word.replace(at, kOwnFolder.size(), own);
      at += own.native().size();
    }
  }
  return words;
}

}  // namespace gapless::tools
