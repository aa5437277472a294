// The kernels' fat binary, as nvcc made it.
__asm__(
    ".section .rodata\n"
    ".balign 64\n"
    ".globl gapless_kernels_fat_binary\n"
    ".hidden gapless_kernels_fat_binary\n"
    "gapless_kernels_fat_binary:\n"
    ".incbin \"" GAPLESS_FAT_BINARY
    "\"\n"
    ".byte 0\n"
    ".previous\n");
