// The same from C++, where errors are exceptions of the program's own.
#include <cstdio>
#include <stdexcept>

#include <gapless/gapless.h>

int main() {
  const auto check = [](gapless_status status) {
    if (status != GAPLESS_OK) throw std::runtime_error(gapless_last_error());
  };
  gapless_allocator* allocator = nullptr;
  void* memory = nullptr;
  check(gapless_create("limit:512MiB", &allocator));
  check(gapless_alloc(allocator, 0, 3 << 20, nullptr, &memory));
  check(gapless_free(allocator, memory));
  check(gapless_destroy(allocator));
  std::printf("allocated with gapless %s\n", gapless_version());
}
