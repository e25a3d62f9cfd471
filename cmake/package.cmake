# Installation: headers under include/holdfast, one static library a module or two shared ones, find_package(holdfast),
# holdfast-core.pc. Each file belongs to a component: core, torch, tools, or portable (not by default). See docs/packaging.md.
include(CMakePackageConfigHelpers)
include(public_headers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/holdfast)

# Two sets of targets, so that find_package(holdfast COMPONENTS core) needs no LibTorch.
set(core_targets holdfast_core)
get_property(modules GLOBAL PROPERTY HOLDFAST_MODULES)
list(REMOVE_ITEM modules cli)
set(torch_targets)
foreach(name IN LISTS modules)
  set(component core)
  if(name IN_LIST HOLDFAST_TORCH_MODULES)
    set(component torch)
  endif()
  list(APPEND ${component}_targets holdfast_${name})
  list(TRANSFORM HOLDFAST_PUBLIC_${name} REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/lib/holdfast/${name}/\\1.h"
       OUTPUT_VARIABLE headers)
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/holdfast/${name} COMPONENT ${component})
endforeach()
if(HOLDFAST_TORCH)
  install(FILES "${PROJECT_SOURCE_DIR}/lib/holdfast/holdfast.h" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/holdfast
          COMPONENT torch)
endif()
if(TARGET holdfast_early_signals)
  set_target_properties(holdfast_early_signals PROPERTIES EXPORT_NAME early_signals)
  list(APPEND core_targets holdfast_early_signals)
endif()
function(install_libraries component set)
  install(TARGETS ${ARGN} EXPORT ${set} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component}
          OBJECTS DESTINATION ${CMAKE_INSTALL_LIBDIR}/holdfast COMPONENT ${component})
  install(EXPORT ${set} NAMESPACE holdfast:: DESTINATION ${package_dir} COMPONENT ${component})
endfunction()
install_libraries(core holdfastCoreTargets ${core_targets})
if(HOLDFAST_TORCH)
  install_libraries(torch holdfastTorchTargets holdfast_holdfast ${torch_targets})
endif()

# For file(1): what its own rules call "data".
install(FILES "${PROJECT_SOURCE_DIR}/lib/holdfast/cli/magic" DESTINATION ${CMAKE_INSTALL_DATADIR}/holdfast COMPONENT tools)

# A static library passes on what it is made of; a shared one has it inside or names it to the loader.
set(HOLDFAST_STATIC ON)
if(BUILD_SHARED_LIBS)
  set(HOLDFAST_STATIC OFF)
endif()
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/holdfastConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/holdfastConfig.cmake" INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/holdfastConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/holdfastConfig.cmake" "${PROJECT_BINARY_DIR}/holdfastConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/dependencies.cmake" DESTINATION ${package_dir} COMPONENT core)
if(HOLDFAST_TORCH)
  install(FILES "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake" DESTINATION ${package_dir} COMPONENT torch)
  foreach(file TorchConfig.cmake TorchConfigVersion.cmake)
    configure_file("${PROJECT_SOURCE_DIR}/cmake/torch/${file}" "${PROJECT_BINARY_DIR}/torch/${file}" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/torch/${file}" DESTINATION ${package_dir}/torch COMPONENT torch)
  endforeach()
endif()

# For pkg-config. Modules in reverse: who is needed comes last.
file(RELATIVE_PATH HOLDFAST_PC_UP "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" /p)
set(HOLDFAST_PC_LIBS -lholdfast_core)
set(HOLDFAST_PC_CFLAGS " -DHOLDFAST_SHARED")
if(HOLDFAST_STATIC)
  set(HOLDFAST_PC_CFLAGS)
  set(names ${HOLDFAST_CORE_MODULES})
  list(REMOVE_ITEM names cli)
  list(REVERSE names)
  list(TRANSFORM names REPLACE "(.+)" "-lholdfast_\\1")
  get_target_property(hdf5 hdf5::hdf5 IMPORTED_LOCATION)
  if(hdf5 MATCHES "^/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/lib([^/]+)\\.so$")
    set(hdf5 "-l${CMAKE_MATCH_1}")
  endif()
  list(JOIN names " " HOLDFAST_PC_LIBS)
  string(APPEND HOLDFAST_PC_LIBS " ${hdf5} -pthread -ldl")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/holdfast-core.pc.in" "${PROJECT_BINARY_DIR}/holdfast-core.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/holdfast-core.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT core)

if(HOLDFAST_STATIC AND PROJECT_IS_TOP_LEVEL)
  include(packages)
endif()
