#pragma once

namespace headrace {

// Whether a sanitizer slows the test down, some ten times: then fewer rounds find what it finds.
#if defined(__has_feature)  // clang; gcc has macros instead.
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace headrace
