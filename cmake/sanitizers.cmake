# -DHOLDFAST_SANITIZE=address,undefined | thread: for the half without LibTorch, whose libraries are not instrumented.
set(CMAKE_CXX_FLAGS_SANITIZED "-O1 -g1 -fno-omit-frame-pointer")
set(CMAKE_EXE_LINKER_FLAGS_SANITIZED "")
if(HOLDFAST_SANITIZE)
  if(HOLDFAST_TORCH)
    message(FATAL_ERROR "HOLDFAST_SANITIZE needs HOLDFAST_TORCH=OFF (presets asan and tsan)")
  endif()
  add_compile_options(-fsanitize=${HOLDFAST_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HOLDFAST_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang AND HOLDFAST_SANITIZE MATCHES address)
    add_compile_definitions(__SANITIZE_ADDRESS__=1)  # g++ says so by itself
  endif()
endif()
