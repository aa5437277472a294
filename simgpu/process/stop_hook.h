// A process that another one of the command ends: before the signal comes, it says its last words.
//
//   a launcher                                       a server, which uses a GPU
//   kill(4711, SIGKILL)
//     writes the signal into 4711's record     ->    writes its report, Python's too
//     waits until it has, for some seconds      <-    writes that it has
//     sends the signal                               ends
//
// So it is known of it what is known of one that ends by itself, and that it was the program's own
// doing. Whom the kernel ends, or somebody who is not of the command, has no such words.
#pragma once

namespace gapless::simgpu {

struct ProcessRecord;

/// From now on a thread waits for that, with the record of this process, which stays.
void hear_of_stop(ProcessRecord& record);

}  // namespace gapless::simgpu
