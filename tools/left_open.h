// What a "yes" leaves open, of the card that the program will run on and of what it will find
// there:
//
//   it was ended       by the program's own: it may have been about to ask for more
//   no step            was taken by an optimizer that it made
//   one step           made the optimizer's states, which a second has from its begin
//   growth             from step to step: with more of them it may not fit
//   steps differ       in what they take: a larger one may come
//   a memory fraction  that the program allows itself has less left than the GPU
//   offloaded          parameters that accelerate keeps on the host for want of room
//   12 MiB left        where context and libraries are taken to have 424 MiB
//   cuLinkCreate_v2    is not simulated, and it went on without
//   assert             failed, and was passed over (simgpu/python/watch_choices.py)
//   NCCL               has buffers of its own, outside of what is counted
//   a size alone       cards that are sold with it have less (cards_of_size.h), older ones run
//                      attention in other kernels (older_gpu.h)
//   compiled kernels   were found, and not made (same_program.h)
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace gapless::tools {

/// Sentences for the notes of a row that fits; none where nothing is left open.
std::vector<std::string> left_open(const nlohmann::json& row);

/// That another process of the program ended it. Empty where none did.
std::string ended_note(const nlohmann::json& row);

/// That it made an optimizer, which took no step. Empty where it made none, and where one did.
std::string no_step_note(const nlohmann::json& row);

/// That a second step would have the states that its only one made. Empty where it took others, or
/// made none.
std::string one_step_note(const nlohmann::json& row);

/// That more was allocated from step to step, where a training may have the steps that fill the
/// GPU so. Empty where not.
std::string growth_note(const nlohmann::json& row);

/// That less is left of what the program allows itself of the GPU
/// (torch.cuda.set_per_process_memory_fraction) than of the GPU. Empty where not.
std::string limit_note(const nlohmann::json& row);

/// That the steps seen took more or less by as much as the GPU has beside the largest of them,
/// where nothing says that no larger one comes. Empty where not.
std::string steps_note(const nlohmann::json& row);

/// That parameters are kept on the host by accelerate. Empty where none are.
std::string offloaded_note(const nlohmann::json& row);

/// That it is tight: less is left than what context and libraries take, of which the simulated GPU
/// has an estimate. Empty where more is.
std::string tight_note(const nlohmann::json& row);

/// That it went on without functions that are not simulated. Empty where it asked for none but
/// those that monitors ask for.
std::string not_simulated_note(const nlohmann::json& row);

/// That an assert on the host failed, and was taken for one that holds. Empty where none was.
std::string assert_note(const nlohmann::json& row);

/// That less is left than NCCL's own buffers were reported to take, where the program has
/// communicators. Empty where more is.
std::string collectives_note(const nlohmann::json& row);

}  // namespace gapless::tools
