// Where in the program live memory was allocated: for messages.
//
//   message  -> call_sites(device) -> the function that the package set (_call_sites.py)
//            <- "4.00 GiB in 2 blocks at train.py:12 (weights); ..."
//               the largest request so far at the place of the one that failed
#pragma once

#include <string>

#include "allocator/driver/driver.h"
#include "torch_plugin/adapter/install.h"

namespace gapless::torch_plugin {

/// Who knows, from now on; nullptr: nobody.
void set_call_sites_namer(gapless_torch_call_sites function);
void set_call_site_teller(gapless_torch_call_site function);

/// Where the calling thread is: "train.py:42 (step)"; empty where nobody knows. As call_sites().
std::string call_site();

/// The folder of the package's files; empty: none is known.
void set_package(const std::string& folder);
std::string package_folder();

/// What is known; zeros where nobody knows. Where nobody was set, loads _call_sites.py of the
/// package's folder, once, if this is a Python program: by its path, since the program may have a
/// module of that name. Takes Python's lock: call it with no lock held.
gapless_torch_places call_sites(DeviceIndex device);

}  // namespace gapless::torch_plugin
