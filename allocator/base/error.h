// Errors of the parts that read files: one exception that says which file, where, and why.
#pragma once

#include <stdexcept>
#include <string>

namespace gapless {

/// Bad input. what() is a whole sentence for the user: "trace.pickle: byte 17: ...".
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  InputError(const std::string& file, const std::string& place, const std::string& cause)
      : std::runtime_error(file + ": " + (place.empty() ? "" : place + ": ") + cause) {}
};

}  // namespace gapless
