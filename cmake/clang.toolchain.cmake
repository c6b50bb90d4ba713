# The clang of the dev and asan presets: 14 where there is one, because its warnings are the ones the
# sources are clean under, else the system's. Compilers named on the command line win.
if(NOT CMAKE_C_COMPILER)
  find_program(HEADRACE_CLANG NAMES clang-14 clang REQUIRED)
  set(CMAKE_C_COMPILER ${HEADRACE_CLANG})
endif()
if(NOT CMAKE_CXX_COMPILER)
  find_program(HEADRACE_CLANGXX NAMES clang++-14 clang++ REQUIRED)
  set(CMAKE_CXX_COMPILER ${HEADRACE_CLANGXX})
endif()
