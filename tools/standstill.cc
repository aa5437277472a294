#include "tools/standstill.h"

namespace gapless::tools {

std::optional<std::uint64_t> Standstill::look(const CameTo& now_at, Clock::time_point now) {
  if (now_at.steps != at_.steps || now_at.peak_bytes != at_.peak_bytes) {
    at_ = now_at;
    since_ = now;
  }
  const std::uint64_t read = now_at.unknown_read - at_.unknown_read;
  if (told_ || now - since_ < kLong || read < kMany) return {};
  told_ = true;
  return read;
}

}  // namespace gapless::tools
