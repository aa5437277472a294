// What several subcommands read from the command line in the same way.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "allocator/trace/trace.h"

namespace gapless::tools {

/// Does what is to be done with each file. One that InputError is thrown for is told on standard
/// error, and the others go on. Whether none was.
bool for_each_file(const std::vector<std::string>& paths,
                   const std::function<void(const std::string&)>& work);

/// The traces of all files, in order, with their warnings told.
struct LoadedTraces {
  std::vector<Trace> traces;
  bool all_good = true;  // false: a file could not be read, which was told
};
LoadedTraces load_all(const std::vector<std::string>& paths);

/// What a command that did its work returns: a bad file says more than that something did not fit.
int status_of(bool all_files_good, bool all_fit);

/// "gapless,native" as a list. Throws InputError for a name that is none, with those there are.
std::vector<std::string> allocators_of(const std::string& list);

/// A size such as "16GiB"; 0 for an empty text. Throws InputError that names the option.
std::uint64_t bytes_of(const std::string& text, const std::string& option);

/// A check for counts: CLI11 takes -1 for the largest one.
CLI::Validator whole_number();

/// Throws InputError where the text is no list of gapless's options.
void check_settings(const std::string& settings);

/// What is to be written at the end of a long run can be written. Throws InputError that names file
/// and option; not for an empty name.
void check_writable(const std::string& file, const char* option);

}  // namespace gapless::tools
