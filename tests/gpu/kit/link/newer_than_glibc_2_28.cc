// What compiled code asks the C library for that glibc 2.28 had not, made of what it had. Linked
// into the programs and libraries of the kit, which see no other (old_libraries.py).
//
// The linker names whatever is missing here: a function that is newer and not among these cannot be
// linked.
#include <cstddef>
#include <cstdint>

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#define HIDDEN extern "C" __attribute__((visibility("hidden")))

// Whether the process has one thread, for shared_ptr (2.32). No, which is always right.
HIDDEN char __libc_single_threaded;
char __libc_single_threaded = 0;

// Functions of their own since 2.33; before, <sys/stat.h> had them call these with the version of
// the structure.
extern "C" int __xstat(int version, const char* path, void* facts);
extern "C" int __lxstat(int version, const char* path, void* facts);
extern "C" int __fxstat(int version, int file, void* facts);
namespace {
constexpr int kVersion = 1;  // on x86-64
}
HIDDEN int stat(const char* path, void* facts) { return __xstat(kVersion, path, facts); }
HIDDEN int lstat(const char* path, void* facts) { return __lxstat(kVersion, path, facts); }
HIDDEN int fstat(int file, void* facts) { return __fxstat(kVersion, file, facts); }
HIDDEN int fstat64(int file, void* facts) { return __fxstat(kVersion, file, facts); }

// "SEGV" (2.32); the table of those names was there to be read before.
extern "C" const char* const sys_sigabbrev[];
HIDDEN const char* sigabbrev_np(int signal) {
  constexpr int kSignals = 65;
  return signal > 0 && signal < kSignals ? sys_sigabbrev[signal] : nullptr;
}

// For std::random_device (2.36).
HIDDEN std::uint32_t arc4random() {
  std::uint32_t number = 0;
  if (getentropy(&number, sizeof number) != 0) __builtin_trap();
  return number;
}

// How GCC's unwinder finds the tables for an address (2.35).
#ifdef DLFO_STRUCT_HAS_EH_DBASE
namespace {

int look_in(dl_phdr_info* library, std::size_t /*size*/, void* argument) {
  auto* const found = static_cast<dl_find_object*>(argument);
  const auto address = reinterpret_cast<std::uintptr_t>(found->dlfo_map_start);
  const ElfW(Phdr)* holds = nullptr;
  const ElfW(Phdr)* tables = nullptr;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = library->dlpi_phdr[i];
    const std::uintptr_t begin = library->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && address >= begin && address < begin + part.p_memsz) holds = &part;
    if (part.p_type == PT_GNU_EH_FRAME) tables = &part;
  }
  if (holds == nullptr || tables == nullptr) return 0;
  const auto pointer = [&](std::uintptr_t at) {
    return reinterpret_cast<void*>(library->dlpi_addr + at);  // NOLINT(performance-no-int-to-ptr)
  };
  *found = {};
  found->dlfo_map_start = pointer(holds->p_vaddr);
  found->dlfo_map_end = pointer(holds->p_vaddr + holds->p_memsz);
  found->dlfo_eh_frame = pointer(tables->p_vaddr);
  return 1;
}

}  // namespace
HIDDEN int _dl_find_object(void* address, dl_find_object* found) noexcept {
  found->dlfo_map_start = address;
  return dl_iterate_phdr(look_in, found) == 1 ? 0 : -1;
}
#endif
