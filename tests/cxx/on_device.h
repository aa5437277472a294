// Arrays on the device, and temporary storage of CUB's two-phase calls, for the tests of kernels.
//
//   OnDevice<int> in({3, 1, 2}), out(1);
//   in_two_phases(storage, [&](void* temporary, std::size_t& bytes) {
//     return cub::DeviceReduce::Sum(temporary, bytes, in.data(), out.data(), 3);
//   });
//   out.values()    {6}
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <cuda_runtime_api.h>

inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::size_t count) : count_(count) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), bytes() == 0 ? 1 : bytes()));
  }
  explicit OnDevice(const std::vector<T>& values) : OnDevice(values.size()) {
    check(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }

  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> found(count_);
    check(cudaMemcpy(found.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return found;
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(T); }

  std::size_t count_;
  T* data_ = nullptr;
};

/// Where temporary storage comes from.
class Storage {
 public:
  virtual ~Storage() = default;
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* memory, std::size_t bytes) = 0;
};

template <class Call>
void in_two_phases(Storage& storage, Call call) {
  std::size_t bytes = 0;
  check(call(nullptr, bytes));
  void* const temporary = storage.allocate(bytes);
  const cudaError_t error = call(temporary, bytes);
  storage.deallocate(temporary, bytes);
  check(error);
}

/// Whole numbers that every type holds exactly, and whose sums of 20,000 every type of four bytes
/// does. The same in every run.
template <class T>
std::vector<T> numbers(std::size_t count, int most = 100) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::vector<T> values(count);
  const int least = std::is_unsigned<T>::value ? 0 : -most;
  for (T& value : values) {
    value = static_cast<T>(least +
                           static_cast<int>(random() % static_cast<unsigned>(most - least + 1)));
  }
  return values;
}
