// Vectors and matrices between the host and a device, which take no handle:
//
//   cublasSetMatrix(3, 2, 4, a, 5, b, 3)   3 rows, 2 columns of 4-byte numbers
//
//     a: | 0 1 2 . . | 5 6 7 . . |    ->    b: | 0 1 2 | 5 6 7 |
#include <cstddef>
#include <cstdint>

#include "simgpu/process/process_record.h"
#include "simgpu/process/stream_calls.h"
#include "simgpu/process/values.h"

namespace {

constexpr int kCopied = 0;
constexpr int kInvalidValue = 7;
constexpr int kMappingError = 11;

struct Columns {
  std::int64_t count, bytes;                // how many, and of each
  std::int64_t source_pitch, target_pitch;  // from one to the next
};

int copy(const Columns& columns, const void* source, void* target, void* stream) {
  using gapless::simgpu::Estimate;
  using gapless::simgpu::stream_calls::copy;
  if (columns.count < 0 || columns.bytes < 0 || columns.source_pitch < columns.bytes ||
      columns.target_pitch < columns.bytes) {
    return kInvalidValue;
  }
  const bool is_whole =
      columns.source_pitch == columns.bytes && columns.target_pitch == columns.bytes;
  const std::int64_t bytes = is_whole ? columns.bytes * columns.count : columns.bytes;
  for (std::int64_t column = 0; column < (is_whole ? 1 : columns.count); ++column) {
    bool unknown = false;
    if (copy(static_cast<char*>(target) + column * columns.target_pitch,
             static_cast<const char*>(source) + column * columns.source_pitch,
             static_cast<std::size_t>(bytes), stream, unknown) != 0) {
      return kMappingError;
    }
    if (unknown) simgpu_estimated(static_cast<int>(Estimate::number));
  }
  return kCopied;
}

int copy_vector(std::int64_t count, std::int64_t bytes, const void* source,
                std::int64_t source_step, void* target, std::int64_t target_step, void* stream) {
  return copy({count, bytes, source_step * bytes, target_step * bytes}, source, target, stream);
}

int copy_matrix(std::int64_t rows, std::int64_t columns, std::int64_t bytes, const void* source,
                std::int64_t source_rows, void* target, std::int64_t target_rows, void* stream) {
  return copy({columns, rows * bytes, source_rows * bytes, target_rows * bytes}, source, target,
              stream);
}

}  // namespace

// Each in both directions, with and without a stream, with sizes of 32 and of 64 bits.
#define CUBLAS extern "C" __attribute__((visibility("default")))
#define COPIES(direction, size, type)                                                             \
  CUBLAS int cublas##direction##Vector##size(type count, type bytes, const void* source,          \
                                             type source_step, void* target, type target_step) {  \
    return copy_vector(count, bytes, source, source_step, target, target_step, nullptr);          \
  }                                                                                               \
  CUBLAS int cublas##direction##VectorAsync##size(type count, type bytes, const void* source,     \
                                                  type source_step, void* target,                 \
                                                  type target_step, void* stream) {               \
    return copy_vector(count, bytes, source, source_step, target, target_step, stream);           \
  }                                                                                               \
  CUBLAS int cublas##direction##Matrix##size(type rows, type columns, type bytes,                 \
                                             const void* source, type source_rows, void* target,  \
                                             type target_rows) {                                  \
    return copy_matrix(rows, columns, bytes, source, source_rows, target, target_rows, nullptr);  \
  }                                                                                               \
  CUBLAS int cublas##direction##MatrixAsync##size(type rows, type columns, type bytes,            \
                                                  const void* source, type source_rows,           \
                                                  void* target, type target_rows, void* stream) { \
    return copy_matrix(rows, columns, bytes, source, source_rows, target, target_rows, stream);   \
  }
COPIES(Set, , int)
COPIES(Get, , int)
COPIES(Set, _64, std::int64_t)
COPIES(Get, _64, std::int64_t)
