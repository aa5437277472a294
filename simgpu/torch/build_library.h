// What a preloaded library does where what it needs for the torch it meets does not lie beside it:
// it asks the Python package that it belongs to, in a process of its own.
//
//   gapless/lib/libgapless_preload.so           in this process, which is about to use CUDA
//   python -I gapless/_for_preload.py .../torch looks into the user's cache; builds it where it is
//                                               not there, in half a minute, for good
//   ~/.cache/gapless/1f0c.../libgapless_torch-2.11.so
//
// The helper is started isolated and by its path: no file of the program's folder, nor of
// PYTHONPATH, is run in it.
#pragma once

#include <string>

namespace gapless::simgpu {

/// The folder of the Python package's files that the library in `own_folder` belongs to: around it,
/// in the source tree around it or, where the package was installed editable, as a file beside it
/// says. Empty where there is none, or where others than the library's owner can change it.
std::string package_folder(const std::string& own_folder);

/// The path of a library for the torch in that folder, by that package: "adapter", which puts
/// gapless in PyTorch's place, or "numbers" (torch_values.h). The helper says on standard error
/// what it does, or why it cannot; then the answer is empty.
std::string build_library(const char* which, const std::string& package,
                          const std::string& own_folder, const std::string& torch_folder);

}  // namespace gapless::simgpu
