# headrace_grpc: gRPC and what it needs, for the node process. As the system's shared libraries; for
# wheels as its archives, since the shared ones need a newer libstdc++ than a wheel may ask for.
option(HEADRACE_GRPC_STATIC "Link gRPC and what it needs as archives" OFF)

function(headrace_add_grpc)
  add_library(headrace_grpc INTERFACE)
  if(NOT HEADRACE_GRPC_STATIC)
    target_link_libraries(headrace_grpc INTERFACE gRPC::grpc++)
    return()
  endif()
  pkg_check_modules(HEADRACE_GRPC REQUIRED grpc++ protobuf)
  set(names ${HEADRACE_GRPC_STATIC_LIBRARIES})
  list(REMOVE_DUPLICATES names)
  # Of glibc, of the processor, or permitted by every platform tag.
  list(REMOVE_ITEM names atomic dl m pthread rt z)
  set(archives "")
  foreach(name IN LISTS names)
    find_library(HEADRACE_ARCHIVE_${name} lib${name}.a)
    mark_as_advanced(HEADRACE_ARCHIVE_${name})
    if(NOT HEADRACE_ARCHIVE_${name})
      message(FATAL_ERROR
        "configuring headrace with HEADRACE_GRPC_STATIC: no lib${name}.a, of Debian's development "
        "packages of gRPC, protobuf, abseil, c-ares, re2 and OpenSSL")
    endif()
    list(APPEND archives ${HEADRACE_ARCHIVE_${name}})
  endforeach()
  # They refer to each other in circles.
  target_link_libraries(headrace_grpc INTERFACE
    -Wl,--start-group ${archives} -Wl,--end-group ZLIB::ZLIB Threads::Threads dl rt)
endfunction()
