# Uses ccache where there is one. The sloppiness is what precompiled headers need: without it ccache refuses every
# file that uses one, and with g++ the preprocessor must leave the header's name in its output.
find_program(HOLDFAST_CCACHE ccache)
mark_as_advanced(HOLDFAST_CCACHE)
if(HOLDFAST_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${HOLDFAST_CCACHE})
  set(HOLDFAST_PCH_FLAGS $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()
