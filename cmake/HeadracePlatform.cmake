# Stops the configure step, with one message, on a platform that Headrace is not for and where a
# library is missing. The core's headers and libraries are looked for here and nowhere else.
include(CheckCXXSymbolExists)

# Linux: io_uring, memfd, pidfd, /proc. glibc: functions that are chosen when a program starts (ifunc).
# 64 bits, little-endian: the formats on disk are memory as it is.
check_cxx_symbol_exists(__GLIBC__ features.h HEADRACE_GLIBC)
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR NOT HEADRACE_GLIBC OR NOT CMAKE_SIZEOF_VOID_P EQUAL 8
   OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|aarch64)$")
  if(NOT HEADRACE_GLIBC)
    set(without " without glibc")
  endif()
  math(EXPR bits "8 * ${CMAKE_SIZEOF_VOID_P}")
  message(FATAL_ERROR
    "configuring headrace for ${CMAKE_SYSTEM_NAME}${without}, ${CMAKE_SYSTEM_PROCESSOR}, ${bits} bits: "
    "it runs on 64-bit Linux with glibc only, on x86_64 (tested) and aarch64 (compiles; never run). "
    "On another system use a container or a virtual machine with Debian 12 or Ubuntu 24.04.")
endif()

find_package(JPEG)
# gRPC's package of Debian 12 names targets of these two, which have no package of their own there.
find_package(Protobuf)
find_package(gRPC CONFIG)
find_package(ZLIB)
find_package(PkgConfig)
if(PkgConfig_FOUND)
  pkg_check_modules(SPNG IMPORTED_TARGET spng)
  pkg_check_modules(ZSTD IMPORTED_TARGET libzstd)
endif()
find_path(HEADRACE_URING_H liburing.h)
find_library(HEADRACE_URING uring)
find_path(HEADRACE_XXHASH_H xxhash.h)
find_path(HEADRACE_FMT_H fmt/core.h)
mark_as_advanced(HEADRACE_URING_H HEADRACE_URING HEADRACE_XXHASH_H HEADRACE_FMT_H)

set(missing "")
if(NOT JPEG_FOUND)
  list(APPEND missing "libjpeg")
endif()
if(NOT PkgConfig_FOUND)
  list(APPEND missing "pkg-config")
else()
  if(NOT SPNG_FOUND)
    list(APPEND missing "libspng")
  endif()
  if(NOT ZSTD_FOUND)
    list(APPEND missing "libzstd")
  endif()
endif()
if(NOT ZLIB_FOUND)
  list(APPEND missing "zlib")
endif()
if(NOT Protobuf_FOUND OR NOT TARGET protobuf::protoc)
  list(APPEND missing "protobuf")
endif()
if(NOT gRPC_FOUND OR NOT TARGET gRPC::grpc_cpp_plugin)
  list(APPEND missing "gRPC")
endif()
if(NOT HEADRACE_URING_H OR NOT HEADRACE_URING)
  list(APPEND missing "liburing")
endif()
if(NOT HEADRACE_XXHASH_H)
  list(APPEND missing "xxhash.h")
endif()
if(NOT HEADRACE_FMT_H)
  list(APPEND missing "fmt/core.h")
endif()
if(missing)
  list(JOIN missing ", " missing)
  message(FATAL_ERROR
    "configuring headrace: not found: ${missing}. On Debian 12 or Ubuntu 24.04 this installs what a "
    "build needs:\n"
    "  apt install g++ pkg-config python3-dev liburing-dev libjpeg-dev libspng-dev libzstd-dev zlib1g-dev libxxhash-dev libfmt-dev libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc")
endif()
