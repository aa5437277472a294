// FatBinary: what nvcc put into a program for the device: for each architecture its machine code,
// and PTX for those to come.
//
//   0xBA55ED50 | 16 | bytes of all      -- header
//   2 | 64 | bytes | ... sm 75 | flags  -- an image: its kind, of its header, its payload ...
//   payload                             -- an ELF file, or zstd's of one
//   1 | 80 | bytes | ... sm 75 | flags
//   payload                             -- PTX, as text
//
// NVIDIA does not describe the format; the offsets here are those that CUDA 12.8 to 13 write, and
// what does not look like them is taken for no image.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gapless::simgpu {

struct DeviceImage {
  enum class Kind : std::uint8_t { ptx, machine_code };
  Kind kind = Kind::machine_code;
  int architecture = 0;  // 75 of sm_75 and compute_75
  std::string bytes;     // decompressed
};

/// The highest architecture, up to `most`, that it has an image for, of machine code or PTX; 0:
/// none.
int highest_architecture(const void* fat_binary, int most);

/// The images of `kind` in a fat binary, which is no file of a user's: the program's own memory.
/// None where it is none, or compressed in a way that is not known.
std::vector<DeviceImage> device_images(const void* fat_binary, DeviceImage::Kind kind);

}  // namespace gapless::simgpu
