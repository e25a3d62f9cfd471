// No test asks the metadata service of the machine that it runs on, also when started by hand: linked into
// every test program (tests/CMakeLists.txt), before main(), and passed on to the programs that it starts.
#include <cstdlib>

extern "C" __attribute__((constructor)) void holdfast_test_no_metadata_service() {
  setenv("HOLDFAST_SOURCES", "signal,file,deadline", 0);
}
