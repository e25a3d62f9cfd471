# LibTorch from the PyPI wheel or the official archive, as the imported target LibTorch::LibTorch. The wheel's own
# find_package(Torch) enables CUDA as a language and insists on nvcc; headers and library files are enough.
#
# Looks at HOLDFAST_LIBTORCH (variable, then environment), then at .deps/libtorch-*. Sets LibTorch_VERSION,
# LibTorch_ROOT_DIR, LibTorch_CXX11_ABI (0 or 1) and LibTorch_CUDA (is the CUDA half linked?).
#
# HOLDFAST_CUDA=OFF links libc10 and libtorch_cpu alone: such a program starts in 0.33 s against 0.55 s.
# HOLDFAST_CUDA=ON adds libtorch, libc10_cuda, libtorch_cuda and the CUDA runtime. AUTO: ON when this machine has a GPU
# and all parts are there. With LibTorch_CUDA_BY_FILE, CUDA's headers and definitions are not part of the target: Holdfast's
# own build gives them to the files that know CUDA (holdfast_cuda_sources() in module.cmake).
set(candidates "${HOLDFAST_LIBTORCH}" "$ENV{HOLDFAST_LIBTORCH}")
if(NOT HOLDFAST_LIBTORCH AND NOT DEFINED ENV{HOLDFAST_LIBTORCH})
  set(candidates "${CMAKE_CURRENT_LIST_DIR}/../.deps/libtorch-2.11.0")
endif()
set(LibTorch_ROOT_DIR)
foreach(candidate IN LISTS candidates)
  foreach(folder "${candidate}" "${candidate}/torch")
    if(NOT LibTorch_ROOT_DIR AND candidate AND EXISTS "${folder}/lib/libtorch_cpu.so")
      file(REAL_PATH "${folder}" LibTorch_ROOT_DIR)
    endif()
  endforeach()
endforeach()

set(LibTorch_VERSION)
foreach(file torch/headeronly/version.h torch/csrc/api/include/torch/version.h)  # from 2.8 on, and before
  if(LibTorch_ROOT_DIR AND NOT LibTorch_VERSION AND EXISTS "${LibTorch_ROOT_DIR}/include/${file}")
    file(STRINGS "${LibTorch_ROOT_DIR}/include/${file}" lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE "[^0-9;]" "" lines "${lines}")
    list(JOIN lines "." LibTorch_VERSION)
  endif()
endforeach()

# Its _GLIBCXX_USE_CXX11_ABI, told by the names that it exports.
set(LibTorch_CXX11_ABI 0)
if(LibTorch_ROOT_DIR AND EXISTS "${LibTorch_ROOT_DIR}/lib/libc10.so")
  file(STRINGS "${LibTorch_ROOT_DIR}/lib/libc10.so" lines REGEX "^_ZN3c10.*__cxx11" LIMIT_COUNT 1)
  if(lines)
    set(LibTorch_CXX11_ABI 1)
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_ROOT_DIR VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "Run cmake/bootstrap, or give -DHOLDFAST_LIBTORCH=/path/to/libtorch, or build without it: -DHOLDFAST_TORCH=OFF")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  set(LibTorch_CUDA OFF)
  set(HOLDFAST_CUDA "${HOLDFAST_CUDA}" CACHE STRING "")
  if(HOLDFAST_CUDA STREQUAL "ON" OR (HOLDFAST_CUDA STREQUAL "AUTO" AND EXISTS /dev/nvidiactl))
    # The wheel's CUDA packages lie beside torch/; a system toolkit is the other place.
    set(cuda_hints "${LibTorch_ROOT_DIR}/../nvidia/cu13" "${LibTorch_ROOT_DIR}/../nvidia/cuda_runtime" /usr/local/cuda
        /usr/local/cuda/targets/x86_64-linux)
    # What was found beside another LibTorch is not this one's.
    if(DEFINED LibTorch_CUDART_OF AND NOT LibTorch_CUDART_OF STREQUAL LibTorch_ROOT_DIR)
      unset(LibTorch_CUDART_INCLUDE_DIR CACHE)
      unset(LibTorch_CUDART_LIBRARY CACHE)
    endif()
    set(LibTorch_CUDART_OF "${LibTorch_ROOT_DIR}" CACHE INTERNAL "")
    find_path(LibTorch_CUDART_INCLUDE_DIR cuda_runtime_api.h HINTS ${cuda_hints} PATH_SUFFIXES include)
    # By folder: a newer runtime of the system must not come before the one that this LibTorch was built with.
    find_library(LibTorch_CUDART_LIBRARY NAMES cudart libcudart.so.13 libcudart.so.12 NAMES_PER_DIR
                 HINTS ${cuda_hints} PATH_SUFFIXES lib lib64)
    mark_as_advanced(LibTorch_CUDART_INCLUDE_DIR LibTorch_CUDART_LIBRARY)
    if(LibTorch_CUDART_INCLUDE_DIR AND LibTorch_CUDART_LIBRARY AND EXISTS "${LibTorch_ROOT_DIR}/lib/libtorch_cuda.so")
      set(LibTorch_CUDA ON)
    elseif(HOLDFAST_CUDA STREQUAL "ON")
      message(FATAL_ERROR "HOLDFAST_CUDA=ON needs libtorch_cuda.so in ${LibTorch_ROOT_DIR}/lib and the CUDA runtime "
                          "(cuda_runtime_api.h, libcudart): run cmake/bootstrap --cuda, or install the CUDA toolkit")
    endif()
  endif()

  set(libraries c10 torch_cpu)
  if(LibTorch_CUDA)
    list(APPEND libraries torch c10_cuda torch_cuda)
  endif()
  set(linked)
  foreach(name IN LISTS libraries)
    add_library(LibTorch::${name} SHARED IMPORTED)
    set_target_properties(LibTorch::${name} PROPERTIES IMPORTED_LOCATION "${LibTorch_ROOT_DIR}/lib/lib${name}.so")
    list(APPEND linked LibTorch::${name})
  endforeach()
  if(LibTorch_CUDA)
    list(APPEND linked "${LibTorch_CUDART_LIBRARY}")
  endif()

  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    "${LibTorch_ROOT_DIR}/include" "${LibTorch_ROOT_DIR}/include/torch/csrc/api/include")
  target_compile_definitions(LibTorch::LibTorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  if(LibTorch_CUDA AND NOT LibTorch_CUDA_BY_FILE)
    target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE "${LibTorch_CUDART_INCLUDE_DIR}")
    target_compile_definitions(LibTorch::LibTorch INTERFACE HOLDFAST_WITH_CUDA USE_C10D_NCCL)
  endif()
  # What libtorch_cpu itself loads (CUDA runtime, CUPTI) is found by its own run path, by the linker, too.
  if(LibTorch_CUDA)
    # CUDA kernels register themselves from constructors: nothing refers to those libraries by name.
    # What libtorch_cuda needs (cuDNN, NCCL, …) need not be on the machine that builds for another one.
    list(PREPEND linked -Wl,--push-state,--no-as-needed,--allow-shlib-undefined)
    list(APPEND linked -Wl,--pop-state)
  endif()
  target_link_libraries(LibTorch::LibTorch INTERFACE ${linked})
  message(STATUS "LibTorch ${LibTorch_VERSION} at ${LibTorch_ROOT_DIR}, CUDA ${LibTorch_CUDA}")
endif()
