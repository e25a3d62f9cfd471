# What the half without LibTorch is made of, as imported targets: spdlog::spdlog, nlohmann_json::nlohmann_json,
# xxhash::xxhash, hdf5::hdf5, CLI11::CLI11, CURL::libcurl (where present), Threads::Threads. Used by the build and by an
# installed holdfastConfig.cmake.
macro(holdfast_find_dependencies)
  find_package(Threads REQUIRED)
  find_package(spdlog REQUIRED)
  find_package(nlohmann_json REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(CURL QUIET)

  if(NOT TARGET xxhash::xxhash)
    find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
    add_library(xxhash::xxhash INTERFACE IMPORTED)
    target_include_directories(xxhash::xxhash INTERFACE "${XXHASH_INCLUDE_DIR}")
    # All code in the header: XXH3 then uses the compiler's own vector flags and needs no library.
    target_compile_definitions(xxhash::xxhash INTERFACE XXH_INLINE_ALL)
  endif()

  # The serial C library by hand: FindHDF5 runs compiler wrappers (a second of configure time) and may pick an MPI build.
  if(NOT TARGET hdf5::hdf5)
    find_path(HDF5_SERIAL_INCLUDE_DIR hdf5.h PATHS /usr/include/hdf5/serial REQUIRED)
    find_library(HDF5_SERIAL_LIBRARY NAMES hdf5_serial hdf5
                 PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/hdf5/serial /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} REQUIRED)
    add_library(hdf5::hdf5 SHARED IMPORTED)
    set_target_properties(hdf5::hdf5 PROPERTIES IMPORTED_LOCATION "${HDF5_SERIAL_LIBRARY}"
                          INTERFACE_INCLUDE_DIRECTORIES "${HDF5_SERIAL_INCLUDE_DIR}")
  endif()
endmacro()
