# Installation: headers under include/holdfast, one library a module, find_package(holdfast).
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/holdfast)

get_property(modules GLOBAL PROPERTY HOLDFAST_MODULES)
set(installed holdfast_core)
if(TARGET holdfast_holdfast)
  list(APPEND installed holdfast_holdfast)
endif()
foreach(name IN LISTS modules)
  list(APPEND installed holdfast_${name})
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/lib/holdfast/${name}" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/holdfast
          FILES_MATCHING PATTERN "*.h" PATTERN internal EXCLUDE)
endforeach()
install(TARGETS ${installed} EXPORT holdfastTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT holdfastTargets NAMESPACE holdfast:: DESTINATION ${package_dir})

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/holdfastConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/holdfastConfig.cmake" INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/holdfastConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/holdfastConfig.cmake" "${PROJECT_BINARY_DIR}/holdfastConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/dependencies.cmake" "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
        DESTINATION ${package_dir})
