# -DHOLDFAST_SANITIZE=address,undefined | thread: for the half without LibTorch, whose libraries are not instrumented.
set(CMAKE_CXX_FLAGS_SANITIZED "-O1 -g1 -fno-omit-frame-pointer")
set(CMAKE_EXE_LINKER_FLAGS_SANITIZED "")
if(HOLDFAST_SANITIZE)
  if(HOLDFAST_TORCH)
    message(FATAL_ERROR "HOLDFAST_SANITIZE needs HOLDFAST_TORCH=OFF (presets asan and tsan)")
  endif()
  add_compile_options(-fsanitize=${HOLDFAST_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HOLDFAST_SANITIZE})
  if(HOLDFAST_SANITIZE MATCHES undefined AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # These look at each access of each object, which is 40 % of the time that g++ takes for such a build. The address
    # sanitizer sees what a wrong pointer does, and the fuzz targets have these checks in the whole library, by clang.
    add_compile_options(-fno-sanitize=null,alignment,object-size,vptr)
  endif()
endif()
