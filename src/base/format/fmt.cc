// fmt's own implementation, compiled once: neither a wheel nor a program that links the core needs
// libfmt.so. Sources include <fmt/core.h> or base/format/errors.h; headers that are installed
// include neither.

#include <fmt/format-inl.h>

// Its headers declare these to be instantiated elsewhere.
FMT_BEGIN_NAMESPACE
namespace detail {
template FMT_API auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
