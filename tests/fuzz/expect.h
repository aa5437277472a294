// What a fuzz target demands: else it stops where a fuzzer sees it.
#pragma once

#include <cstdio>
#include <cstdlib>

inline void expect(bool holds, const char* otherwise) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", otherwise);
  std::abort();
}
