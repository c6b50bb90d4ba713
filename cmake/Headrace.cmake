# headrace_library(<layer> SRCS a.cc ... DEPS base ...): one static library per folder under src/.
#   TESTING: test doubles, which only tests and benchmarks may link; never installed.
# headrace_test(<name> DEPS <layer> ... LABELS unit):      <name>.cc, a test of ctest with a process of its own; linked into
#   the program of its folder, such as engine_lanes_tests (tests/program/test_main.cc).
#   HEADRACE_TEST_FLAGS are of the tests' own objects. Inline functions of headers that the linker takes from there
#   have them, too.
#   COMPUTES: its own code, such as a slow model, takes seconds: compiled with -O2 in place of HEADRACE_TEST_FLAGS.
#   LABELS unit threads: what it tests is used by several threads at once; TSan runs these.
# headrace_fuzz(<name> DEPS <layer> ...):                  one libFuzzer executable, <name>.cc.

# Who may use whom: DESIGN's arrows. tools/tidy.py reads this table too, for #include lines. The row a_b is that of the
# folder a/b where that is a library of its own; tests and test doubles of layer a may use the row a_testing, too.
set(HEADRACE_MAY_USE_base "")
set(HEADRACE_MAY_USE_index base)
set(HEADRACE_MAY_USE_plan base index)
set(HEADRACE_MAY_USE_model base)
set(HEADRACE_MAY_USE_store base ipc)
set(HEADRACE_MAY_USE_tier base store)
set(HEADRACE_MAY_USE_codec base)
set(HEADRACE_MAY_USE_ipc base)
set(HEADRACE_MAY_USE_fetch base index store tier)
set(HEADRACE_MAY_USE_engine base index plan model store tier codec fetch)
set(HEADRACE_MAY_USE_sim base index plan model store tier codec fetch engine)
set(HEADRACE_MAY_USE_sim_published base plan model)
set(HEADRACE_MAY_USE_sim_job base index plan model store tier codec fetch engine loader sim sim_published)
set(HEADRACE_MAY_USE_engine_testing engine sim papers)
set(HEADRACE_MAY_USE_plan_testing papers)
set(HEADRACE_MAY_USE_loader_testing papers)
set(HEADRACE_MAY_USE_papers_testing sim sim_job sim_published codec store)
set(HEADRACE_MAY_USE_peer base store tier fetch)
set(HEADRACE_MAY_USE_peer_grpc base store tier fetch peer)
set(HEADRACE_MAY_USE_peer_testing tier)
set(HEADRACE_MAY_USE_observe base store tier engine peer)
set(HEADRACE_MAY_USE_loader base index plan model store tier codec fetch engine peer observe)
set(HEADRACE_MAY_USE_papers base index plan model engine loader)
set(HEADRACE_MAY_USE_profile base index plan store codec engine loader)
set(HEADRACE_MAY_USE_workers base ipc engine loader)
set(HEADRACE_MAY_USE_node_protocol base plan ipc fetch engine peer observe loader)
set(HEADRACE_MAY_USE_node_client base ipc engine loader node_protocol)
set(HEADRACE_MAY_USE_node_server base index plan tier ipc fetch engine peer peer_grpc observe loader node_protocol)
set(HEADRACE_MAY_USE_node_links base tier fetch peer peer_grpc)
set(HEADRACE_MAY_USE_node base store ipc loader papers peer node_protocol node_client node_server node_links)
set(HEADRACE_MAY_USE_testing base store)
set(HEADRACE_MAY_USE_tier_testing base store tier testing)

# The public headers, include/headrace/NAME.h, by the layer that each belongs to: they obey the table above as if they lay
# in its folder. tools/tidy.py reads this table, and refuses a public header that includes another one than these.
set(HEADRACE_PUBLIC_base ids members part_options part_stats status)
set(HEADRACE_PUBLIC_index folder_index index index_writer)
set(HEADRACE_PUBLIC_plan order_options)
set(HEADRACE_PUBLIC_model machine_model)
set(HEADRACE_PUBLIC_engine batch)
set(HEADRACE_PUBLIC_observe loader_stats)
set(HEADRACE_PUBLIC_loader loader loader_options)
set(HEADRACE_PUBLIC_papers papers)

# Designated initializers leave out on purpose what has a default; g++ 12 warns of that. It also sees
# overlapping copies in "text" + std::string() (gcc bug 105651), and takes sources that are compiled together for headers.
set(HEADRACE_WARNINGS -Wall -Wextra -Wconversion -Wshadow -Werror -Wno-missing-field-initializers
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety> $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${HEADRACE_UNITY}>>:-Wno-subobject-linkage>)

# Compiles the sources of a target ten together, with HEADRACE_UNITY: headers that these share are read once. Paths in
# the joined sources are relative, so that ccache knows them in another clone.
function(headrace_unity target)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${HEADRACE_UNITY} UNITY_BUILD_BATCH_SIZE 10 UNITY_BUILD_RELOCATABLE ON)
endfunction()

function(headrace_library layer)
  cmake_parse_arguments(L "TESTING" "" "SRCS;DEPS;EXTERNAL" ${ARGN})
  if(L_TESTING AND NOT HEADRACE_TESTS AND NOT HEADRACE_BENCHMARKS)
    return()
  endif()
  foreach(dep IN LISTS L_DEPS)
    if(NOT dep IN_LIST HEADRACE_MAY_USE_${layer})
      message(FATAL_ERROR "layer '${layer}' may not use '${dep}' (allowed: ${HEADRACE_MAY_USE_${layer}})")
    endif()
  endforeach()
  add_library(headrace_${layer} STATIC ${L_SRCS})
  add_library(headrace::${layer} ALIAS headrace_${layer})
  set_target_properties(headrace_${layer} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF EXPORT_NAME ${layer}
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_features(headrace_${layer} PUBLIC cxx_std_20)
  target_include_directories(headrace_${layer} PUBLIC
    $<BUILD_INTERFACE:${headrace_SOURCE_DIR}/include> $<BUILD_INTERFACE:${headrace_SOURCE_DIR}/src>
    $<INSTALL_INTERFACE:include>)
  list(TRANSFORM L_DEPS PREPEND headrace_)
  target_link_libraries(headrace_${layer} PUBLIC ${L_DEPS} ${L_EXTERNAL})
  target_compile_options(headrace_${layer} PRIVATE ${HEADRACE_WARNINGS})
  headrace_unity(headrace_${layer})
  if(NOT L_TESTING)
    set_property(GLOBAL APPEND PROPERTY HEADRACE_LAYERS headrace_${layer})
  endif()
endfunction()

# The program that a folder's tests are linked into: made by the first of them.
function(headrace_test_program out)
  file(RELATIVE_PATH folder ${headrace_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "^src/" "" folder ${folder})
  string(REPLACE "/" "_" program ${folder}_tests)
  set(${out} ${program} PARENT_SCOPE)
  if(TARGET ${program})
    return()
  endif()
  # The names of the sources that its tests are of, for the check of test_main.cc.
  set(named ${CMAKE_CURRENT_BINARY_DIR}/${program}_sources.cc)
  file(GENERATE OUTPUT ${named} CONTENT
    "extern const char kTestSources[];\nconst char kTestSources[] = \"$<JOIN:$<TARGET_PROPERTY:${program},HEADRACE_TEST_SOURCES>,$<COMMA>>\";\n")
  add_executable(${program} ${named})
  target_link_libraries(${program} PRIVATE headrace_test_main)
  target_compile_options(${program} PRIVATE ${HEADRACE_WARNINGS} ${HEADRACE_TEST_FLAGS})
  target_compile_features(${program} PRIVATE cxx_std_20)
  headrace_unity(${program})
  add_dependencies(headrace_tests ${program})
endfunction()

function(headrace_test name)
  if(NOT HEADRACE_TESTS)
    return()
  endif()
  cmake_parse_arguments(T "COMPUTES" "TIMEOUT" "DEPS;LABELS;SRCS" ${ARGN})
  if(HEADRACE_TEST_LABEL AND NOT HEADRACE_TEST_LABEL IN_LIST T_LABELS)
    return()
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  headrace_test_program(program)
  set(sources ${name}.cc ${T_SRCS})
  target_sources(${program} PRIVATE ${sources})
  list(TRANSFORM T_DEPS PREPEND headrace_)
  target_link_libraries(${program} PRIVATE ${T_DEPS})
  if(T_COMPUTES AND HEADRACE_TEST_FLAGS)
    set_source_files_properties(${name}.cc PROPERTIES COMPILE_OPTIONS -O2)  # comes after these
  endif()
  list(TRANSFORM sources REPLACE ".*/" "")
  set_property(TARGET ${program} APPEND PROPERTY HEADRACE_TEST_SOURCES ${sources})
  list(JOIN sources "," sources)
  add_test(NAME ${name} COMMAND ${program} --sources=${sources})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS}")
endfunction()

# Runs its corpus-free for a bounded number of inputs as a test, so that CI fuzzes briefly.
function(headrace_fuzz name)
  if(NOT HEADRACE_FUZZ)
    return()
  endif()
  cmake_parse_arguments(F "" "RUNS" "DEPS;SRCS" ${ARGN})
  if(NOT F_RUNS)
    set(F_RUNS 20000)
  endif()
  add_executable(${name} ${name}.cc ${F_SRCS})
  list(TRANSFORM F_DEPS PREPEND headrace_)
  target_link_libraries(${name} PRIVATE ${F_DEPS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_compile_options(${name} PRIVATE ${HEADRACE_WARNINGS})
  add_test(NAME ${name} COMMAND ${name} -runs=${F_RUNS} -max_total_time=30 -rss_limit_mb=2048)
  set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS fuzz)
endfunction()
