// Where in the program live memory was allocated: for messages.
//
//   message  -> call_sites(device) -> the function that the package set (_call_sites.py)
//            <- "4.00 GiB in 2 blocks at train.py:12 (weights); ..."
#pragma once

#include <cstddef>
#include <string>

#include "allocator/driver/driver.h"

namespace gapless::torch_plugin {

/// Writes the text, ended by a zero, into at most `room` bytes.
using CallSitesNamer = void (*)(int device, char* text, std::size_t room);

/// Who knows, from now on; nullptr: nobody.
void set_call_sites_namer(CallSitesNamer function);

/// The folder of the package's files; empty: none is known.
void set_package(const std::string& folder);

/// The text; empty where nobody knows. Where nobody was set, loads _call_sites.py of the package's
/// folder, once, if this is a Python program: by its path, since the program may have a module of
/// that name. Takes Python's lock: call it with no lock held.
std::string call_sites(DeviceIndex device);

}  // namespace gapless::torch_plugin
