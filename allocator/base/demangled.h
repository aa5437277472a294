// A C++ name as people write it: "_ZN3Net7forwardEv" is "Net::forward()".
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include <cxxabi.h>

namespace gapless {

/// The name itself where it is none of C++.
inline std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 && text != nullptr ? text.get() : name;
}

}  // namespace gapless
