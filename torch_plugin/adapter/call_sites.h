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

/// The text; empty where nobody knows. Where nobody was set, asks the package, once, if this is a
/// Python program that could import it. Takes Python's lock: call it with no lock held.
std::string call_sites(DeviceIndex device);

}  // namespace gapless::torch_plugin
