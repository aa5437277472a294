// What several subcommands read from the command line in the same way.
#pragma once

#include <string>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless::tools {

/// The traces of all files, in order. Throws InputError for the first bad one, before any work.
std::vector<Trace> load_all(const std::vector<std::string>& paths);

/// "gapless,native" as a list. Throws InputError for a name that is none, with those there are.
std::vector<std::string> allocators_of(const std::string& list);

/// A size such as "16GiB"; 0 for an empty text. Throws InputError that names the option.
std::uint64_t bytes_of(const std::string& text, const std::string& option);

/// Throws InputError where the text is no list of gapless's options.
void check_settings(const std::string& settings);

}  // namespace gapless::tools
