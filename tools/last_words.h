// What a program said at its end, and which line of it says why it ended.
//
//   Traceback (most recent call last):
//     File "train.py", line 3, in <module>
//   ImportError: No module 'requests'       <- why
//   Try: pip install requests
//   E1129 ... failed (exitcode: 1)          a launcher's, which only says that a child failed
//   ChildFailedError: ... ========          (torchrun, accelerate launch): taken off
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allocator/base/error.h"

namespace gapless::tools {

/// The lines of a text that are not blank, without colours; of a progress bar what it came to.
std::vector<std::string> lines_said(std::string_view text);

/// Those of them that a launcher's child said, where a launcher tells at the end that one failed;
/// else all of them.
std::vector<std::string> without_launcher(std::vector<std::string> lines);

/// The same of a file's last 16 KiB; none where there is no such file.
std::vector<std::string> lines_said_last(const std::filesystem::path& file);

/// What exceptions of Python's said: of each the first line after its traceback.
std::vector<std::string> exceptions_in(const std::vector<std::string>& lines);

/// The exception that ended a Python program: the last that is not a launcher's about its children.
/// Else the last line; empty of no lines. 300 bytes of it at most.
std::string why_it_ended(const std::vector<std::string>& lines);

/// The last exception that a program which ended well had printed, other than of memory, which is
/// counted, and what Python ignores as it takes objects down; empty where there is none.
std::string exception_passed_over(const std::vector<std::string>& lines);

/// The last of them, `most` at most.
std::vector<std::string> last_of(const std::vector<std::string>& lines, std::size_t most);

/// A program that ended for another reason than memory: what() is a sentence, `said` its last
/// words.
class ProgramFailed : public InputError {
 public:
  ProgramFailed(const std::string& sentence, std::vector<std::string> said)
      : InputError(sentence), said_(std::move(said)) {}
  [[nodiscard]] const std::vector<std::string>& said() const { return said_; }

 private:
  std::vector<std::string> said_;
};

}  // namespace gapless::tools
