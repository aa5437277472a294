// build_adapter: what the preloaded library does where there is no adapter for the torch it meets.
//
//   gapless/lib/libgapless_preload.so           in this process, which is about to use CUDA
//   python -m gapless build --once .../torch    in one of its own, with the package around it
//   ~/.cache/gapless/libgapless_torch-2.11.so   half a minute later, for good
#pragma once

#include <string>

namespace gapless::torch_plugin {

/// Builds the adapter for the torch in that folder with the Python package that this library, in
/// `own_folder`, belongs to. It says on standard error what it does, or why it cannot. False: there
/// is no such package, or it could not.
bool build_adapter(const std::string& own_folder, const std::string& torch_folder);

}  // namespace gapless::torch_plugin
