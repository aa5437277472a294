/* What libgapless_torch-VERSION.so offers beside gapless.h: it puts gapless in the place of
 * PyTorch's CUDA allocator. To be loaded into a process that has the CUDA build of that version of
 * torch. */
#ifndef GAPLESS_TORCH_INSTALL_H
#define GAPLESS_TORCH_INSTALL_H

/* NOLINTBEGIN(modernize-*): this is C */
#include <stddef.h>

#include "allocator/gapless.h"

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef enum gapless_torch_result {
  GAPLESS_TORCH_INSTALLED = 0,
  GAPLESS_TORCH_WAS_INSTALLED = 1, /* before; nothing changed */
  GAPLESS_TORCH_REFUSED = 2,       /* nothing changed; the message says why */
  GAPLESS_TORCH_WRONG_OPTIONS = 3  /* nothing changed; the program is not to go on without them */
} gapless_torch_result;

/* Makes gapless the allocator of all CUDA memory from now on. What was allocated before stays valid
 * and goes back where it came from. Options are GAPLESS_CONF's. `message` gets up to `room` bytes,
 * with a terminating 0: a reason, or a note; "" where there is nothing to say. Never throws. */
gapless_torch_result gapless_torch_install(char* message, size_t room);

/* The version of torch it was built for: "2.11". */
const char* gapless_torch_version(void);

/* For the functions of gapless.h; NULL where gapless is not installed or CUDA was not used yet. It
 * must not be destroyed. */
gapless_allocator* gapless_torch_allocator(void);

/* Where in the program memory comes from, as far as PyTorch recorded it; texts end with a 0. */
typedef struct gapless_torch_places {
  char live[4096];        /* the device's live blocks by call site, the most bytes first; or "" */
  char largest_at[1024];  /* the call site of the request that failed last; or "" */
  uint64_t largest_bytes; /* the largest that was served there; 0: none is known */
} gapless_torch_places;
typedef void (*gapless_torch_call_sites)(int device, gapless_torch_places* places);

/* Called from now on where a request fails while allocations are recorded with their stack traces,
 * on that request's thread and without a lock held, with `places` all zeros; what it writes becomes
 * part of the message. Only Python can read those traces. NULL: nobody is called. */
void gapless_torch_name_call_sites(gapless_torch_call_sites function);

/* Where the calling thread is in the program: "train.py:42 (step)" to `text`, up to `room` bytes
 * with a terminating 0; "" where it is not known. Called from now on before each request, without a
 * lock held, where GAPLESS_CONF asks for checks. NULL: nobody is called. */
typedef void (*gapless_torch_call_site)(char* text, size_t room);
void gapless_torch_tell_call_site(gapless_torch_call_site function);

/* The folder of the Python package's files, which this may load where nobody has set such a
 * function by the time one would be called; NULL or "": there is none. */
void gapless_torch_set_package(const char* folder);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
/* NOLINTEND(modernize-*) */

#endif /* GAPLESS_TORCH_INSTALL_H */
