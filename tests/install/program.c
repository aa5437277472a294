/* Allocates and frees on the first GPU: what README.md shows, against the installed header. */
#include <gapless/gapless.h>
#include <stdio.h>

int main(void) {
  gapless_allocator* allocator;
  void* memory;
  if (gapless_create(NULL, &allocator) != GAPLESS_OK ||
      gapless_alloc(allocator, 0, 3 << 20, NULL, &memory) != GAPLESS_OK ||
      gapless_free(allocator, memory) != GAPLESS_OK ||
      gapless_destroy(allocator) != GAPLESS_OK) {
    fprintf(stderr, "%s\n", gapless_last_error());
    return 1;
  }
  printf("allocated with gapless %s\n", gapless_version());
  return 0;
}
