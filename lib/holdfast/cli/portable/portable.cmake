# holdfast_portable, for cpack -G TGZ: the program `holdfast` that asks a machine for nothing but its C library, and for none
# newer than 2.34 if it was built on Debian 12. Not built by default; not there without the static libraries of HDF5.
if(BUILD_SHARED_LIBS)
  return()
endif()
set(archives)
foreach(name hdf5_serial sz aec z)
  find_library(HOLDFAST_STATIC_${name} lib${name}.a)
  mark_as_advanced(HOLDFAST_STATIC_${name})
  if(NOT HOLDFAST_STATIC_${name})
    return()
  endif()
  list(APPEND archives "${HOLDFAST_STATIC_${name}}")
endforeach()

# These objects come first, so those of the libraries that would ask for libcpp-httplib are not taken. Where cpp-httplib is
# no header but a library, it wants OpenSSL and more: there the program has no rehearse.
set(sources main.cc portable/older_glibc.cc)
set(modules ${HOLDFAST_CORE_MODULES})
list(REVERSE modules)
list(TRANSFORM modules PREPEND holdfast_)
if(HTTPLIB_LIBRARY)
  list(APPEND sources portable/without_rehearse.cc)
else()
  list(INSERT modules 1 holdfast_metadata_server)
endif()
add_executable(holdfast_portable EXCLUDE_FROM_ALL ${sources})
# The lanes that read compile_commands.json know main.cc as a part of the program `holdfast`.
set_target_properties(holdfast_portable PROPERTIES OUTPUT_NAME holdfast RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/portable"
                      EXPORT_COMPILE_COMMANDS OFF)
target_compile_options(holdfast_portable PRIVATE ${HOLDFAST_WARNINGS})
target_include_directories(holdfast_portable PRIVATE "${PROJECT_SOURCE_DIR}/lib")
add_dependencies(holdfast_portable ${modules})
list(TRANSFORM modules REPLACE "(.+)" "$<TARGET_FILE:\\1>")
target_link_libraries(holdfast_portable PRIVATE ${modules} ${archives} CLI11::CLI11 nlohmann_json::nlohmann_json
                      Threads::Threads ${CMAKE_DL_LIBS} m)
target_link_options(holdfast_portable PRIVATE -static-libstdc++ -static-libgcc)
