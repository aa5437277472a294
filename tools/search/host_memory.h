// What of this machine is left, and what the processes take that one probe has started.
//
// They are known by a variable that all of them inherit, whoever started them and whatever process
// group they made for themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

namespace gapless::tools {

/// Memory that can be had without swapping: of the machine, or of the control group this is in.
std::uint64_t available_host_bytes();

/// Processes whose environment began with NAME=VALUE in it.
std::vector<pid_t> processes_with(const std::string& variable);

/// What a process holds that is in no file; 0 where it is gone.
std::uint64_t host_bytes_of(pid_t process);

}  // namespace gapless::tools
