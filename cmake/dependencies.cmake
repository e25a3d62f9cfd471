# What the half without LibTorch is made of, as imported targets: nlohmann_json::nlohmann_json, xxhash::xxhash,
# hdf5::hdf5, CLI11::CLI11, Threads::Threads.
macro(holdfast_find_dependencies)
  find_package(Threads REQUIRED)
  find_package(nlohmann_json REQUIRED)
  find_package(CLI11 REQUIRED)

  if(NOT TARGET xxhash::xxhash)
    find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
    add_library(xxhash::xxhash INTERFACE IMPORTED)
    target_include_directories(xxhash::xxhash INTERFACE "${XXHASH_INCLUDE_DIR}")
    # All code in the header: XXH3 then uses the compiler's own vector flags and needs no library.
    target_compile_definitions(xxhash::xxhash INTERFACE XXH_INLINE_ALL)
  endif()

  holdfast_find_hdf5()
  if(NOT TARGET hdf5::hdf5)
    message(FATAL_ERROR "HDF5 (hdf5.h and libhdf5) is not there: run cmake/bootstrap, or apt-get install libhdf5-dev")
  endif()
endmacro()

# Used by the build and by an installed holdfastConfig.cmake. The serial C library by hand: FindHDF5 runs compiler wrappers
# (a second of configure time) and may pick an MPI build.
macro(holdfast_find_hdf5)
  if(NOT TARGET hdf5::hdf5)
    find_path(HDF5_SERIAL_INCLUDE_DIR hdf5.h PATHS /usr/include/hdf5/serial)
    find_library(HDF5_SERIAL_LIBRARY NAMES hdf5_serial hdf5
                 PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/hdf5/serial /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
    if(HDF5_SERIAL_INCLUDE_DIR AND HDF5_SERIAL_LIBRARY)
      add_library(hdf5::hdf5 SHARED IMPORTED)
      set_target_properties(hdf5::hdf5 PROPERTIES IMPORTED_LOCATION "${HDF5_SERIAL_LIBRARY}"
                            INTERFACE_INCLUDE_DIRECTORIES "${HDF5_SERIAL_INCLUDE_DIR}")
    endif()
  endif()
endmacro()

# Only of the build: httplib::httplib, a server for the `holdfast` program and the tests.
macro(holdfast_find_program_dependencies)
  if(NOT TARGET httplib::httplib)
    find_path(HTTPLIB_INCLUDE_DIR httplib.h REQUIRED)
    add_library(httplib::httplib INTERFACE IMPORTED)
    target_include_directories(httplib::httplib INTERFACE "${HTTPLIB_INCLUDE_DIR}")
    # Distributions compile it into a library, with these; elsewhere it is all in the header.
    find_library(HTTPLIB_LIBRARY cpp-httplib)
    if(HTTPLIB_LIBRARY)
      target_link_libraries(httplib::httplib INTERFACE "${HTTPLIB_LIBRARY}")
      target_compile_definitions(httplib::httplib INTERFACE CPPHTTPLIB_OPENSSL_SUPPORT CPPHTTPLIB_ZLIB_SUPPORT
                                                            CPPHTTPLIB_BROTLI_SUPPORT)
    endif()
  endif()
endmacro()
