// Which sanitizer a test was built with. GCC defines a macro for it, Clang 14 has a feature.
#pragma once

#ifdef __has_feature
#define GAPLESS_HAS_FEATURE(feature) __has_feature(feature)
#else
#define GAPLESS_HAS_FEATURE(feature) 0
#endif

namespace gapless::testing {

#if defined(__SANITIZE_ADDRESS__) || GAPLESS_HAS_FEATURE(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

#if defined(__SANITIZE_THREAD__) || GAPLESS_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace gapless::testing

#undef GAPLESS_HAS_FEATURE
