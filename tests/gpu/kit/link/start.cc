// The begin of a program on any glibc. Programs linked against 2.34 and newer leave it to the C
// library to run their constructors; older ones brought a function for that, and an older library
// runs nothing else.
//
// -Wl,--wrap=__libc_start_main has the linker put this in between.
extern "C" {

using Main = int(int, char**, char**);
using Constructor = void(int, char**, char**);

int __real___libc_start_main(Main* main, int argc, char** argv, Constructor* init, void (*fini)(),
                             void (*rtld_fini)(), void* stack_end);

void _init();
extern Constructor* __init_array_start[] __attribute__((visibility("hidden")));
extern Constructor* __init_array_end[] __attribute__((visibility("hidden")));

static void construct(int argc, char** argv, char** environment) {
  _init();
  for (Constructor** at = __init_array_start; at != __init_array_end; ++at) {
    (*at)(argc, argv, environment);
  }
}

int __wrap___libc_start_main(Main* main, int argc, char** argv, Constructor* /*init*/,
                             void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  return __real___libc_start_main(main, argc, argv, construct, fini, rtld_fini, stack_end);
}
}
