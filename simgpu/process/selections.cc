#include "simgpu/process/selections.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "simgpu/process/device_memory.h"

namespace gapless::simgpu {
namespace {

using Action = SmallKernel::Action;

constexpr std::uint64_t kMostSelected = 1 << 20;

template <class T>
std::vector<T> read_numbers(const DeviceMemory& memory, DeviceAddress address, std::size_t count) {
  std::vector<T> numbers(count);
  if (!memory.read(numbers.data(), address, count * sizeof(T))) numbers.clear();
  return numbers;
}

template <class T>
void write_numbers(DeviceMemory& memory, DeviceAddress address, const std::vector<T>& numbers) {
  memory.write(address, numbers.data(), numbers.size() * sizeof(T));
}

// Where the numbers are that are not zero.
std::vector<std::int64_t> found_in(const DeviceMemory& memory, NumberType type,
                                   DeviceAddress address, std::uint64_t count) {
  std::vector<std::int64_t> found;
  if (count > kMostSelected) return found;
  with_type(type, [&](auto element) {
    using T = decltype(element);
    std::vector<unsigned char> bytes(count * sizeof(T));
    if (!memory.read(bytes.data(), address, bytes.size())) return;
    for (std::size_t i = 0; i < count; ++i) {
      if (load_number<T>(bytes.data(), i) != Computed<T>{}) {
        found.push_back(static_cast<std::int64_t>(i));
      }
    }
  });
  return found;
}

// Iterator {address, no functor}, output, count. Of several blocks also their share: ints and
// longs of theirs, then the count once more and the number of blocks.
bool count(const SmallKernel& kernel, void** arguments, DeviceMemory& memory) {
  constexpr std::size_t kShareCount = 32;
  constexpr std::size_t kShareBlocks = 40;
  const auto address = read_at<DeviceAddress>(arguments[0]);
  const auto output = read_at<DeviceAddress>(arguments[1]);
  const auto numbers = read_at<std::uint64_t>(arguments[2]);
  std::size_t blocks = 1;
  if (kernel.action == Action::count_blocks) {
    const auto grid = read_at<int>(arguments[3], kShareBlocks);
    if (read_at<std::uint64_t>(arguments[3], kShareCount) != numbers || grid < 1) return true;
    blocks = static_cast<std::size_t>(grid);
  }
  const std::uint64_t found = found_in(memory, kernel.type, address, numbers).size();
  std::vector<int> sums(blocks);
  sums[0] = static_cast<int>(found);
  write_numbers(memory, output, sums);
  return found != 0 || numbers == 0;
}

// Input, output, count.
void add_counts(void** arguments, DeviceMemory& memory) {
  const auto numbers = read_at<int>(arguments[2]);
  if (numbers < 1 || static_cast<std::uint64_t>(numbers) > kMostSelected) return;
  const auto counts = read_numbers<int>(memory, read_at<DeviceAddress>(arguments[0]),
                                        static_cast<std::size_t>(numbers));
  int sum = 0;
  for (const int each : counts) sum += each;
  write_numbers(memory, read_at<DeviceAddress>(arguments[1]), std::vector<int>{sum});
}

// Counting iterator {first position}, iterator {address, no functor}, output, ..., [7] count.
void write_positions(const SmallKernel& kernel, void** arguments, DeviceMemory& memory) {
  const auto first = read_at<std::int64_t>(arguments[0]);
  const auto numbers = read_at<int>(arguments[7]);
  if (numbers < 1) return;
  auto positions = found_in(memory, kernel.type, read_at<DeviceAddress>(arguments[1]),
                            static_cast<std::uint64_t>(numbers));
  for (std::int64_t& position : positions) position += first;
  write_numbers(memory, read_at<DeviceAddress>(arguments[2]), positions);
}

// Output (which begins with the positions), sizes[16], dimensions, count, a count on the device.
void write_indices(void** arguments, DeviceMemory& memory) {
  constexpr int kDimensions = 16;
  const auto address = read_at<DeviceAddress>(arguments[0]);
  const auto dimensions = read_at<int>(arguments[2]);
  const auto numbers = read_at<std::int64_t>(arguments[3]);
  if (dimensions < 1 || dimensions > kDimensions || numbers < 1 ||
      static_cast<std::uint64_t>(numbers) > kMostSelected ||
      read_at<DeviceAddress>(arguments[4]) != 0) {
    return;
  }
  auto positions = read_numbers<std::int64_t>(memory, address, static_cast<std::size_t>(numbers));
  for (int dimension = dimensions - 1; dimension >= 0; --dimension) {
    const auto size = read_at<std::int64_t>(arguments[1], 8 * static_cast<std::size_t>(dimension));
    if (size < 1) return;
    auto indices = positions;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      indices[i] %= size;
      positions[i] /= size;
    }
    write_numbers(memory, address + 8 * static_cast<std::uint64_t>(dimension * numbers), indices);
  }
}

}  // namespace

bool run_selection(const SmallKernel& kernel, void** arguments, DeviceMemory& memory) {
  switch (kernel.action) {
    case Action::count:
    case Action::count_blocks:
      return count(kernel, arguments, memory);
    case Action::add_counts:
      add_counts(arguments, memory);
      return true;
    case Action::positions:
      write_positions(kernel, arguments, memory);
      return true;
    case Action::unique:
      return false;
    case Action::repeat:  // repeats, their sums, output, count, size of the output
      return read_at<std::int64_t>(arguments[4]) != 0 || read_at<std::int64_t>(arguments[3]) == 0;
    default:
      write_indices(arguments, memory);
      return true;
  }
}

}  // namespace gapless::simgpu
