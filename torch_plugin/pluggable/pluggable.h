/* The functions of libgapless.so that torch.cuda.memory.CUDAPluggableAllocator takes, by name:
 *
 *   CUDAPluggableAllocator("libgapless.so", "gapless_torch_alloc", "gapless_torch_free")
 *
 * The others go to the setters of what its .allocator() gives (gapless.pluggable_allocator() does
 * all of it). One allocator for the process is made when memory is first asked for, with the
 * options of GAPLESS_CONF. Nothing here needs torch to be built. Where they fail they throw, which
 * is how such functions tell PyTorch: out of memory is c10::OutOfMemoryError. Only
 * gapless_torch_free does not, since destructors call it. */
#ifndef GAPLESS_TORCH_PLUGGABLE_H
#define GAPLESS_TORCH_PLUGGABLE_H

/* NOLINTBEGIN(modernize-*): this is C */
#include <stddef.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* `stream`: a cudaStream_t. 0 bytes give NULL. */
void* gapless_torch_alloc(size_t bytes, int device, void* stream);
/* What gapless_torch_alloc did not give is named on standard error, and left alone. */
void gapless_torch_free(void* memory, size_t bytes, int device, void* stream);
/* set_record_stream_fn: without it a tensor used on two streams is not safe. */
void gapless_torch_record_stream(void* memory, void* stream);
/* set_reset_fn: torch.cuda.empty_cache() */
void gapless_torch_empty_cache(void);
/* set_memory_fraction_fn */
void gapless_torch_set_memory_fraction(double fraction, int device);
/* set_base_alloc_fn: each block is an allocation. */
void* gapless_torch_base_allocation(void* memory, size_t* bytes);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
/* NOLINTEND(modernize-*) */

#endif /* GAPLESS_TORCH_PLUGGABLE_H */
