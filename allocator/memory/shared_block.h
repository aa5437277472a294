// SharedBlock: a block of device memory as another process is told of it, and opens it.
//
//   owner     block   [   ..###|######|##....  ]      offset 0.4 pages, bytes 1.9 pages
//             message { process 4711 begun at 98213, fd 31, fd 32, fd 40 }    one for each piece
//   importer  addresses [  ..###|######|##....  ]     the same memory side by side
//
// Memory made of several pieces has several handles: the importer maps them one behind the other.
// With file descriptors it takes them out of the owner's process (pidfd_getfd), which must keep
// them open until then; with fabric handles the message is all it needs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "allocator/driver/driver.h"

namespace gapless {

struct SharedPiece {
  SharedHandle handle;
  std::uint64_t bytes = 0;
};

struct SharedBlock {
  ShareType type = ShareType::none;
  std::uint64_t offset_bytes = 0;  // of the block's begin in the first piece
  std::uint64_t bytes = 0;
  std::vector<SharedPiece> pieces;
};

/// As bytes, for any channel between processes.
std::string to_message(const SharedBlock& block);
/// The block of such a message, with descriptors of this process's own. False, with the cause in
/// `error`, where it is no such message or the descriptors cannot be had.
bool from_message(std::string_view message, SharedBlock& block, std::string& error);
/// Closes the descriptors.
void close_descriptors(SharedBlock& block);

/// Another process's block, mapped here.
class ImportedBlock {
 public:
  ImportedBlock(Driver& driver, DeviceIndex device) : driver_(driver), device_(device) {}
  ImportedBlock(const ImportedBlock&) = delete;
  ImportedBlock& operator=(const ImportedBlock&) = delete;
  ~ImportedBlock() { (void)close(); }

  /// Maps it for the device; nothing may be open. The descriptors stay the caller's.
  DriverStatus open(const SharedBlock& block);
  [[nodiscard]] bool is_open() const { return open_; }
  /// Where the block begins.
  [[nodiscard]] DeviceAddress address() const { return base_ + offset_bytes_; }
  /// Gives the addresses back, after waiting for the device, since work may still use them. Where
  /// the driver refuses, what is left is tried again with the next close().
  DriverStatus close();

 private:
  DriverStatus map(const SharedBlock& block);

  Driver& driver_;
  DeviceIndex device_;
  bool open_ = false;
  DeviceAddress base_ = 0;
  std::uint64_t offset_bytes_ = 0;
  std::uint64_t reserved_bytes_ = 0;
  std::uint64_t mapped_bytes_ = 0;
  std::vector<MemHandle> held_;  // which the driver refused to release
};

}  // namespace gapless
