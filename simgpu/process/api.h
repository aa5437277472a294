// What libsimgpu.so offers to the libraries in front of it.
#pragma once

#define SIMGPU_API __attribute__((visibility("default")))
