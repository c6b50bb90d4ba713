# Component `licenses`: the licences of the libraries that a wheel carries, as files or compiled in.
# `make wheel` installs it beside our own licence. A build from source carries none of these libraries
# and does not install it, so only an installation of it needs the files that it names.

if(SKBUILD_METADATA_DIR)
  set(headrace_license_dir ${SKBUILD_METADATA_DIR}/licenses/third_party)
else()
  set(headrace_license_dir share/headrace/licenses)
endif()

# headrace_license(<library> <file>...): the first of the files that there is.
function(headrace_license library)
  foreach(file IN LISTS ARGN)
    if(EXISTS ${file})
      install(FILES ${file} DESTINATION ${headrace_license_dir} RENAME ${library}.txt
              COMPONENT licenses EXCLUDE_FROM_ALL)
      return()
    endif()
  endforeach()
  list(JOIN ARGN " nor " files)
  install(CODE "message(FATAL_ERROR \"installing the licence of ${library}: there is no ${files}\")"
          COMPONENT licenses EXCLUDE_FROM_ALL)
endfunction()

# Debian's package first, then Ubuntu's where its name differs.
set(doc /usr/share/doc)
headrace_license(flac ${doc}/libflac-dev/copyright ${doc}/libflac12/copyright)
headrace_license(fmt ${doc}/libfmt-dev/copyright)
headrace_license(lame ${doc}/libmp3lame-dev/copyright ${doc}/libmp3lame0/copyright)
headrace_license(libjpeg-turbo ${doc}/libjpeg62-turbo-dev/copyright ${doc}/libjpeg-turbo8-dev/copyright)
headrace_license(libogg ${doc}/libogg-dev/copyright ${doc}/libogg0/copyright)
headrace_license(libsndfile ${doc}/libsndfile1-dev/copyright)
headrace_license(libspng ${doc}/libspng-dev/copyright)
headrace_license(liburing ${doc}/liburing-dev/copyright)
headrace_license(libvorbis ${doc}/libvorbis-dev/copyright ${doc}/libvorbis0a/copyright)
headrace_license(libwebp ${doc}/libwebp-dev/copyright)
headrace_license(mpg123 ${doc}/libmpg123-dev/copyright ${doc}/libmpg123-0/copyright)
headrace_license(opus ${doc}/libopus-dev/copyright ${doc}/libopus0/copyright)
headrace_license(zstd ${doc}/libzstd-dev/copyright)
headrace_license(xxhash ${doc}/libxxhash-dev/copyright)
if(HEADRACE_TIFF)  # and what libtiff needs; the wheels of tools/build_wheels.py are without
  headrace_license(jbigkit ${doc}/libjbig-dev/copyright)
  headrace_license(lerc ${doc}/liblerc-dev/copyright)
  headrace_license(libdeflate ${doc}/libdeflate-dev/copyright)
  headrace_license(libtiff ${doc}/libtiff-dev/copyright)
  headrace_license(xz ${doc}/liblzma-dev/copyright)
endif()
string(REGEX MATCH "^[0-9]+" gcc_major "${CMAKE_CXX_COMPILER_VERSION}")
headrace_license(libstdc++ ${doc}/libstdc++-${gcc_major}-dev/copyright)
headrace_license(nanobind ${NB_DIR}/../nanobind-${nanobind_VERSION}.dist-info/licenses/LICENSE)

# robin-map comes with nanobind; its licence is the first comment of its header.
set(header ${NB_DIR}/ext/robin_map/include/tsl/robin_map.h)
set(robin_map ${CMAKE_CURRENT_BINARY_DIR}/robin-map.txt)
if(EXISTS ${header})
  file(READ ${header} text)
  string(FIND "${text}" "*/" end)
  string(SUBSTRING "${text}" 0 ${end} text)
  file(WRITE ${robin_map} "${text}*/\n")
endif()
headrace_license(robin-map ${robin_map})
