/* gapless: a caching allocator for GPU memory that leaves no gap between the memory it reserves
 * and the memory it hands out. This is its C interface; everything above it is private.
 *
 *   gapless_allocator* allocator;
 *   if (gapless_create(NULL, &allocator) != GAPLESS_OK) { ... gapless_last_error() ... }
 *   void* memory;
 *   gapless_alloc(allocator, 0, 1 << 20, stream, &memory);
 *   gapless_free(allocator, memory);
 *   gapless_destroy(allocator);
 *
 * Every function may be called from any thread; none throws, and none writes to its results unless
 * it returns GAPLESS_OK. A block freed may be reused at once by later work on the stream it was
 * allocated on; work of another stream that gets it comes after that stream's work so far.
 *
 * In a forked child, where CUDA cannot be used, an allocator of the parent's owns nothing:
 * gapless_free does nothing, and all else is GAPLESS_DRIVER_ERROR.
 */
#ifndef GAPLESS_H
#define GAPLESS_H

/* NOLINTBEGIN(modernize-*): this is C */
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

typedef struct gapless_allocator gapless_allocator;

typedef enum gapless_status {
  GAPLESS_OK = 0,
  GAPLESS_OUT_OF_MEMORY = 1,
  GAPLESS_INVALID_ARGUMENT = 2, /* the caller's mistake: null, unknown address, device or option */
  GAPLESS_DRIVER_ERROR = 3,     /* no driver, or it refused something other than memory */
  GAPLESS_INTERNAL_ERROR = 4    /* a bug, or the host ran out of memory */
} gapless_status;

/* One figure: now, its highest value, all that was ever added, and all that was taken away. */
typedef struct gapless_stat {
  int64_t current;
  int64_t peak;
  int64_t allocated;
  int64_t freed;
} gapless_stat;

/* A figure for all memory, and for PyTorch's two pools (blocks up to 1 MiB, and larger ones). */
typedef struct gapless_pool_stat {
  gapless_stat all;
  gapless_stat small_pool;
  gapless_stat large_pool;
} gapless_pool_stat;

/* PyTorch's DeviceStats, field by field. Bytes where the name says so, else counts. Later versions
 * add fields at the end: `size` says which there are, so that a program and a library of different
 * versions understand each other.
 *
 *   gapless_statistics statistics = GAPLESS_STATISTICS_INIT;
 *   gapless_stats(allocator, 0, &statistics); */
typedef struct gapless_statistics {
  size_t size; /* in: sizeof(gapless_statistics); out: how many bytes of it the library has set */
  gapless_pool_stat allocation;
  gapless_pool_stat segment;
  gapless_pool_stat active;
  gapless_pool_stat inactive_split;
  gapless_pool_stat allocated_bytes;
  gapless_pool_stat reserved_bytes;
  gapless_pool_stat active_bytes;
  gapless_pool_stat inactive_split_bytes;
  gapless_pool_stat requested_bytes;
  gapless_stat oversize_allocations;
  gapless_stat oversize_segments;
  int64_t num_alloc_retries;
  int64_t num_ooms;
  int64_t num_sync_all_streams;
  int64_t num_device_alloc;
  int64_t num_device_free;
  int64_t max_split_size;
} gapless_statistics;
#define GAPLESS_STATISTICS_INIT \
  { sizeof(gapless_statistics) }

/* "0.1.0" */
const char* gapless_version(void);
/* "out of memory", ... */
const char* gapless_status_text(gapless_status status);

/* An allocator over all devices of the CUDA driver. `options`: "key:value,..." as in GAPLESS_CONF
 * (docs/options.md), or NULL for that variable's own. A wrong option is GAPLESS_INVALID_ARGUMENT,
 * and so is one in the variable: who asks for a limit is not to run without it. */
gapless_status gapless_create(const char* options, gapless_allocator** allocator);

/* Gives everything back to the driver. GAPLESS_INVALID_ARGUMENT, and nothing done, while blocks are
 * live, pinned or shared, or another process's are open. NULL is ignored. */
gapless_status gapless_destroy(gapless_allocator* allocator);

int32_t gapless_devices(const gapless_allocator* allocator);

/* At least `bytes` bytes, aligned to 512. 0 bytes give NULL. `stream`: a CUstream or cudaStream_t;
 * NULL is the default stream. */
gapless_status gapless_alloc(gapless_allocator* allocator, int32_t device, size_t bytes,
                             void* stream, void** memory);

/* Takes back what gapless_alloc gave. NULL is ignored; any other address is
 * GAPLESS_INVALID_ARGUMENT. */
gapless_status gapless_free(gapless_allocator* allocator, void* memory);

/* Whether a live block of this allocator begins there; then *bytes is its size, rounded. */
int gapless_owns(const gapless_allocator* allocator, const void* memory, size_t* bytes);

/* The live block is used by work on that stream too, given to it before the block is freed: its
 * memory is not used again before that work is done. The host never waits for that. */
gapless_status gapless_record_stream(gapless_allocator* allocator, void* memory, void* stream);

/* The same where the stream may be another device's than the memory's: a copy between devices. */
gapless_status gapless_record_stream_of(gapless_allocator* allocator, void* memory, int32_t device,
                                        void* stream);

/* Private pools, named by two numbers as PyTorch's: {0, n} or {n, 0}. Between begin and end
 * requests on `stream` (on any stream where `all_streams` is not 0) go to the pool; begin comes
 * before a graph capture, end after it. What is free in a pool is only the pool's, until it has
 * been released as often as it was begun and its last block is freed. */
gapless_status gapless_begin_pool(gapless_allocator* allocator, int32_t device, uint64_t pool_first,
                                  uint64_t pool_second, void* stream, int all_streams);
gapless_status gapless_end_pool(gapless_allocator* allocator, int32_t device, uint64_t pool_first,
                                uint64_t pool_second);
gapless_status gapless_release_pool(gapless_allocator* allocator, int32_t device,
                                    uint64_t pool_first, uint64_t pool_second);

/* What is free in the pool may serve others before a request fails (`use_on_oom`); its blocks, from
 * now on, begin and end with a page, which they share with no other (`no_split`). */
gapless_status gapless_set_pool(gapless_allocator* allocator, int32_t device, uint64_t pool_first,
                                uint64_t pool_second, int use_on_oom, int no_split);

/* The live block is known to a network card, to NCCL or to another process: until it is unpinned as
 * often as it was pinned, its memory stays where it is and is not used again, also when it is freed
 * before. */
gapless_status gapless_pin(gapless_allocator* allocator, void* memory);
gapless_status gapless_unpin(gapless_allocator* allocator, void* memory);

/* Pins the block and writes a message by which another process may open it: up to *size bytes to
 * `message`, and how many it has to *size. Where *size is too small, or `message` is NULL, nothing
 * is shared and the answer is GAPLESS_INVALID_ARGUMENT, with *size set. To be unshared as often as
 * it was shared; this process must live until it was opened. */
gapless_status gapless_share(gapless_allocator* allocator, void* memory, void* message,
                             size_t* size);
gapless_status gapless_unshare(gapless_allocator* allocator, void* memory);
/* Another process's block, mapped for the device; gapless_close waits for the device. */
gapless_status gapless_open(gapless_allocator* allocator, int32_t device, const void* message,
                            size_t size, void** memory);
gapless_status gapless_close(gapless_allocator* allocator, void* memory);

/* Gives the pool's memory back to the device, while its blocks keep their addresses, which must not
 * be used until gapless_wake. `save`: contents are kept in host memory, else lost. Waits for the
 * device. gapless_wake may be GAPLESS_OUT_OF_MEMORY: the pool stays asleep. */
gapless_status gapless_sleep(gapless_allocator* allocator, int32_t device, uint64_t pool_first,
                             uint64_t pool_second, int save);
gapless_status gapless_wake(gapless_allocator* allocator, int32_t device, uint64_t pool_first,
                            uint64_t pool_second);

/* GAPLESS_INVALID_ARGUMENT where statistics->size was not set. */
gapless_status gapless_stats(const gapless_allocator* allocator, int32_t device,
                             gapless_statistics* statistics);
gapless_status gapless_reset_peak_stats(gapless_allocator* allocator, int32_t device);
gapless_status gapless_reset_accumulated_stats(gapless_allocator* allocator, int32_t device);

/* Returns free memory to the driver until at most `keep_bytes` are reserved. Waits for the device.
 */
gapless_status gapless_trim(gapless_allocator* allocator, int32_t device, size_t keep_bytes);

/* Reserves no more than `bytes` on the device from now on. */
gapless_status gapless_set_limit(gapless_allocator* allocator, int32_t device, size_t bytes);

/* Where the options ask for checks: looks at the bands around every live block of the device now,
 * which waits for it, and tells on standard error what is wrong. All that was found so far is in
 * gapless_describe's JSON, as the device's "mistakes". */
gapless_status gapless_check(gapless_allocator* allocator, int32_t device);

/* Writes the state of every device as JSON to the file, for `gapless inspect`. */
gapless_status gapless_dump(const gapless_allocator* allocator, const char* path);

/* Records every request from now on to a new file, until it is ended or the process is; `stacks`:
 * with where in the program they come from. For `gapless replay`, `inspect` and `view`.
 * GAPLESS_INVALID_ARGUMENT where the file cannot be made or a recording is on already; ending:
 * where none is, or its file could not be written to the end. */
gapless_status gapless_record(gapless_allocator* allocator, const char* path, int stacks);
gapless_status gapless_record_end(gapless_allocator* allocator);

/* The same text as gapless_dump's; why the device's last request that failed did, as things are now
 * (GAPLESS_INVALID_ARGUMENT where none did); and the options of GAPLESS_CONF with their defaults.
 * Each writes up to *size bytes of JSON, without a terminating 0, and sets *size to how many there
 * are; where there was less room it is GAPLESS_INVALID_ARGUMENT. */
gapless_status gapless_describe(const gapless_allocator* allocator, void* json, size_t* size);
gapless_status gapless_explain(const gapless_allocator* allocator, int32_t device, void* json,
                               size_t* size);
gapless_status gapless_config(void* json, size_t* size);

/* Why the last call of this thread failed, in words; "" where none did. The text lives until the
 * thread's next call. */
const char* gapless_last_error(void);

#ifdef __cplusplus
}
#endif
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

/* NOLINTEND(modernize-*) */

#endif /* GAPLESS_H */
