# Installation: headers under include/holdfast, one static library a module or two shared ones, find_package(holdfast).
include(CMakePackageConfigHelpers)
include(public_headers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/holdfast)

# Two sets of targets, so that find_package(holdfast COMPONENTS core) needs no LibTorch.
set(core_targets holdfast_core)
get_property(modules GLOBAL PROPERTY HOLDFAST_MODULES)
list(REMOVE_ITEM modules cli models)
set(torch_targets)
foreach(name IN LISTS modules)
  if(name IN_LIST HOLDFAST_TORCH_MODULES)
    list(APPEND torch_targets holdfast_${name})
  else()
    list(APPEND core_targets holdfast_${name})
  endif()
  list(TRANSFORM HOLDFAST_PUBLIC_${name} REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/lib/holdfast/${name}/\\1.h"
       OUTPUT_VARIABLE headers)
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/holdfast/${name})
endforeach()
if(HOLDFAST_TORCH)
  install(FILES "${PROJECT_SOURCE_DIR}/lib/holdfast/holdfast.h" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/holdfast)
endif()
if(TARGET holdfast_early_signals)
  set_target_properties(holdfast_early_signals PROPERTIES EXPORT_NAME early_signals)
  list(APPEND core_targets holdfast_early_signals)
endif()
install(TARGETS ${core_targets} EXPORT holdfastCoreTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} OBJECTS DESTINATION ${CMAKE_INSTALL_LIBDIR}/holdfast)
install(EXPORT holdfastCoreTargets NAMESPACE holdfast:: DESTINATION ${package_dir})
if(HOLDFAST_TORCH)
  install(TARGETS holdfast_holdfast ${torch_targets} EXPORT holdfastTorchTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT holdfastTorchTargets NAMESPACE holdfast:: DESTINATION ${package_dir})
endif()

# For file(1): what its own rules call "data".
install(FILES "${PROJECT_SOURCE_DIR}/lib/holdfast/cli/magic" DESTINATION ${CMAKE_INSTALL_DATADIR}/holdfast)

# A static library passes on what it is made of; a shared one has it inside or names it to the loader.
set(HOLDFAST_STATIC ON)
if(BUILD_SHARED_LIBS)
  set(HOLDFAST_STATIC OFF)
endif()
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/holdfastConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/holdfastConfig.cmake" INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/holdfastConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/holdfastConfig.cmake" "${PROJECT_BINARY_DIR}/holdfastConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/dependencies.cmake" "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
        DESTINATION ${package_dir})
if(HOLDFAST_TORCH)
  foreach(file TorchConfig.cmake TorchConfigVersion.cmake)
    configure_file("${PROJECT_SOURCE_DIR}/cmake/torch/${file}" "${PROJECT_BINARY_DIR}/torch/${file}" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/torch/${file}" DESTINATION ${package_dir}/torch)
  endforeach()
endif()
