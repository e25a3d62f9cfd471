# Read by cpack, once for each generator.
if(CPACK_GENERATOR STREQUAL DEB)
  if(NOT CPACK_HOLDFAST_PREFIX STREQUAL "/usr")
    message(FATAL_ERROR "This build was configured for ${CPACK_HOLDFAST_PREFIX}, and its libraries would not lie where Debian "
                        "looks for them: configure it with -DCMAKE_INSTALL_PREFIX=/usr")
  endif()
  list(REMOVE_ITEM CPACK_COMPONENTS_ALL portable)
else()
  set(CPACK_COMPONENTS_ALL portable)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
  set(CPACK_PACKAGE_FILE_NAME "holdfast-tools-${CPACK_PACKAGE_VERSION}-linux-${CMAKE_HOST_SYSTEM_PROCESSOR}")
  set(CPACK_ARCHIVE_PORTABLE_FILE_NAME "${CPACK_PACKAGE_FILE_NAME}")
endif()
