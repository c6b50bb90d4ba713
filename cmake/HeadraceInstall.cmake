# Installs the core as a CMake package: find_package(headrace), target headrace::headrace.
#
# All of it is component headrace_dev: a wheel takes component python and carries none of this.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# headrace::headrace is all that ships: every library under src/, but not the simulator, and not the
# node process, which needs gRPC.
get_property(headrace_shipped GLOBAL PROPERTY HEADRACE_LAYERS)
list(REMOVE_ITEM headrace_shipped headrace_sim headrace_sim_published headrace_sim_job headrace_node_server headrace_node_links headrace_peer_grpc)
add_library(headrace INTERFACE)
add_library(headrace::headrace ALIAS headrace)
target_link_libraries(headrace INTERFACE ${headrace_shipped})

set(headrace_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/headrace)
install(TARGETS headrace ${headrace_shipped} EXPORT headraceTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT headrace_dev)
install(EXPORT headraceTargets NAMESPACE headrace::
  DESTINATION ${headrace_package_dir} COMPONENT headrace_dev)
# The public headers; those in src/ are private.
install(DIRECTORY include/ DESTINATION include COMPONENT headrace_dev FILES_MATCHING PATTERN "*.h")

configure_package_config_file(cmake/headraceConfig.cmake.in headraceConfig.cmake
  INSTALL_DESTINATION ${headrace_package_dir})
# Before 1.0 a minor version may break what is built on it.
write_basic_package_version_file(headraceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
    ${CMAKE_CURRENT_BINARY_DIR}/headraceConfig.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/headraceConfigVersion.cmake
  DESTINATION ${headrace_package_dir} COMPONENT headrace_dev)
