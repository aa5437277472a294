#include "allocator/trace/zstd_frame.h"

#include <memory>

#include <zstd.h>

#include "allocator/base/error.h"

namespace gapless {

std::string zstd_frame(std::string_view bytes, int level) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                     ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(
      ZSTD_compress2(context.get(), packed.data(), packed.size(), bytes.data(), bytes.size()));
  packed.shrink_to_fit();
  return packed;
}

std::string unpack_zstd_frame(std::string_view packed, ReadBudget& budget,
                              const std::string& place) {
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) {
    throw InputError(budget.file(), place, "not a zstd frame");
  }
  budget.hold(size, place);
  budget.work(size / 16 + packed.size(), place);
  std::string bytes(size, '\0');
  const std::size_t got = ZSTD_decompress(bytes.data(), bytes.size(), packed.data(), packed.size());
  if (ZSTD_isError(got) != 0 || got != size) {
    throw InputError(budget.file(), place,
                     ZSTD_isError(got) != 0 ? ZSTD_getErrorName(got) : "the frame is too short");
  }
  return bytes;
}

}  // namespace gapless
