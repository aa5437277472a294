#include "tools/view/page_files.h"

// SYMBOL and SYMBOL_end enclose the bytes of a file.
#define EMBED(SYMBOL, FILE)                                                                 \
  __asm__(                                                                                  \
      ".section .rodata\n"                                                                  \
      ".globl gapless_page_" #SYMBOL                                                        \
      "\n"                                                                                  \
      ".hidden gapless_page_" #SYMBOL                                                       \
      "\n"                                                                                  \
      "gapless_page_" #SYMBOL                                                               \
      ":\n"                                                                                 \
      ".incbin \"" FILE                                                                     \
      "\"\n"                                                                                \
      ".globl gapless_page_" #SYMBOL                                                        \
      "_end\n"                                                                              \
      ".hidden gapless_page_" #SYMBOL                                                       \
      "_end\n"                                                                              \
      "gapless_page_" #SYMBOL                                                               \
      "_end:\n"                                                                             \
      ".byte 0\n"                                                                           \
      ".previous\n");                                                                       \
  extern "C" const char gapless_page_##SYMBOL[];                                            \
  extern "C" const char gapless_page_##SYMBOL##_end[];                                      \
  namespace {                                                                               \
  std::string_view SYMBOL() {                                                               \
    return {gapless_page_##SYMBOL,                                                          \
            static_cast<std::size_t>(gapless_page_##SYMBOL##_end - gapless_page_##SYMBOL)}; \
  }                                                                                         \
  }

EMBED(skeleton, GAPLESS_PAGE_FOLDER "/page.html")
EMBED(style, GAPLESS_PAGE_FOLDER "/page.css")
EMBED(d3, GAPLESS_D3)
EMBED(format, GAPLESS_PAGE_FOLDER "/format.js")
EMBED(data, GAPLESS_PAGE_FOLDER "/data.js")
EMBED(lifetimes, GAPLESS_PAGE_FOLDER "/lifetimes.js")
EMBED(counters, GAPLESS_PAGE_FOLDER "/counters.js")
EMBED(segments, GAPLESS_PAGE_FOLDER "/segments.js")
EMBED(windows, GAPLESS_PAGE_FOLDER "/windows.js")
EMBED(raster, GAPLESS_PAGE_FOLDER "/raster.js")
EMBED(chart, GAPLESS_PAGE_FOLDER "/chart.js")
EMBED(timeline, GAPLESS_PAGE_FOLDER "/timeline.js")
EMBED(blocks, GAPLESS_PAGE_FOLDER "/blocks.js")
EMBED(address_space, GAPLESS_PAGE_FOLDER "/address_space.js")
EMBED(flame, GAPLESS_PAGE_FOLDER "/flame.js")
EMBED(details, GAPLESS_PAGE_FOLDER "/details.js")
EMBED(filter, GAPLESS_PAGE_FOLDER "/filter.js")
EMBED(app, GAPLESS_PAGE_FOLDER "/app.js")

namespace gapless::tools {

std::string_view page_skeleton() { return skeleton(); }

std::string_view page_style() { return style(); }

std::vector<std::string_view> page_scripts() {
  return {d3(),      format(),  data(),   lifetimes(), counters(), segments(),
          windows(), raster(),  chart(),  timeline(),  blocks(),   address_space(),
          flame(),   details(), filter(), app()};
}

}  // namespace gapless::tools
