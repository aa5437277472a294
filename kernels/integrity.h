/* Fills a GPU's memory with a pattern and says later which bytes are not as they were left. A C
 * interface, so that C++, C and Python (ctypes) use the same library; CUDA's driver is all that it
 * needs.
 *
 *   fill    11 bytes at 0x7f00'0000'0006    one write   8a 90 fe 56 6f 92 45 ff 69 7b 53
 *           somebody writes 0s                                       00 00
 *   verify  the same 11 bytes               one read    checked 11, mismatches 2, first 4, last 5
 *
 * What a byte has to be follows from its address, not from where a range begins: ranges may begin
 * and end at any byte, and a part of a filled range can be verified by itself. Byte k of the word
 * at the multiple of 4 below it (of lowest address: the lowest 8 bits) is
 *
 *   GAPLESS_PATTERN_WORD          byte k of `word`
 *   GAPLESS_PATTERN_BY_ADDRESS    byte k of hash(address, seed), which kernels/pattern.h defines
 *
 * By address, memory that is seen at two addresses or was moved is found: under one seed no two
 * words of one aligned 16 GiB are equal, and of words further apart one pair in 2^32 is. So is
 * memory that was given to two owners, where each has its own seed: no word is equal under two.
 * Of the bytes of words that differ one in 256 is equal by chance, and is no mismatch.
 */
#ifndef GAPLESS_KERNELS_INTEGRITY_H
#define GAPLESS_KERNELS_INTEGRITY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { GAPLESS_PATTERN_WORD = 0, GAPLESS_PATTERN_BY_ADDRESS = 1 };

typedef struct gapless_memory_pattern {
  int kind;
  uint32_t word; /* of GAPLESS_PATTERN_WORD */
  uint32_t seed; /* of GAPLESS_PATTERN_BY_ADDRESS */
} gapless_memory_pattern;

/* Counts and offsets are in bytes; offsets begin with the range. The same memory has the same
 * verdict each time. */
typedef struct gapless_memory_verdict {
  uint64_t checked;    /* that were read and compared: the range's bytes, where the kernel ran */
  uint64_t mismatches; /* that are not the pattern's */
  uint64_t first;      /* the offset of the first of these; UINT64_MAX: there is none */
  uint64_t last;       /* and of the last; UINT64_MAX: there is none */
} gapless_memory_verdict;

/* Each submits work to `stream` (a CUstream or cudaStream_t) of the current context, and returns 0;
 * else an error, which gapless_kernels_last_error() puts into words. Nothing but the range and the
 * verdict is read or written. A range of 0 bytes may be NULL. */
int gapless_memory_fill(const gapless_memory_pattern* pattern, void* memory, size_t bytes,
                        void* stream);
/* `verdict`: memory of the device, or of the host and mapped for it, in multiples of 8 bytes and
 * outside of the range. What it held does not matter. It can be read once the stream has come so
 * far; until then it is this call's. Of 0 bytes it says that 0 were checked. */
int gapless_memory_verify(const gapless_memory_pattern* pattern, const void* memory, size_t bytes,
                          gapless_memory_verdict* verdict, void* stream);

/* The same for `copy`, memory of the host that stands for a range of the device's from `address`
 * on. They need no driver. */
int gapless_memory_fill_host(const gapless_memory_pattern* pattern, void* copy, uint64_t address,
                             size_t bytes);
int gapless_memory_verify_host(const gapless_memory_pattern* pattern, const void* copy,
                               uint64_t address, size_t bytes, gapless_memory_verdict* verdict);

/* Of the calling thread; "" before any. */
const char* gapless_kernels_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
