// The kernels' fat binaries, as nvcc made them.
#define EMBED(SYMBOL, FILE)                      \
  __asm__(                                       \
      ".section .rodata\n"                       \
      ".balign 64\n"                             \
      ".globl " SYMBOL                           \
      "\n"                                       \
      ".hidden " SYMBOL "\n" SYMBOL              \
      ":\n"                                      \
      ".incbin \"" GAPLESS_FAT_BINARIES "/" FILE \
      "\"\n"                                     \
      ".byte 0\n"                                \
      ".previous\n")

EMBED("gapless_cross_entropy_fat_binary", "cross_entropy.fatbin");
EMBED("gapless_integrity_fat_binary", "integrity.fatbin");
