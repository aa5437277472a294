// Whether this build of PyTorch has kernels for the GPU that was named: the simulated one runs
// none.
//
//   --gpu V100, PyTorch for CUDA 13     sm_75 sm_80 ... sm_120, and the GPU has 7.0
//                                       yes, with another build of PyTorch
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace gapless::tools {

/// What the verdict of such a row ends with.
inline constexpr std::string_view kWithAnotherBuild = ", with another build of PyTorch";

/// Whether code for any of these runs on a GPU of that compute capability (70: 7.0). `built_for`
/// are words as of torch.cuda.get_arch_list(): machine code (sm_75) runs where the major number is
/// the same and the minor one no less, PTX (compute_75) on all that is no less; 90a on 9.0 alone,
/// 100f on its family (CUDA C++ Programming Guide, "Binary Compatibility", "PTX Compatibility").
/// True where there are no words.
bool has_kernels(const nlohmann::json& built_for, int capability);

/// Says it in the verdict of a row that was found to fit, and among its notes where it has such
/// already. To be called whenever a row is.
void judge_kernels(nlohmann::json& row);

/// The same as a sentence; empty where there are kernels, and where it does not fit anyway.
std::string lacking_kernels_note(const nlohmann::json& row);

}  // namespace gapless::tools
