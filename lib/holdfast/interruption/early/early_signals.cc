// Installs the signal handlers before anything else in the process. Entries of .preinit_array run after the
// dynamic loader has resolved this program's symbols, and before the constructors of any library. A trainer
// that loads LibTorch reaches main() a quarter of a second later; a SIGTERM in that time would kill it. The
// main thread gets its alternate stack here, other threads in threads.cc.
//
// Linked into programs as an object file (target holdfast_early_signals), because shared libraries cannot
// have such entries.
#include "holdfast/interruption/internal/signal_latch.h"

namespace {

void install(int /*argc*/, char** /*argv*/, char** environment) {
  holdfast::internal::install_early_signal_handlers(environment);
}

using Entry = void (*)(int, char**, char**);
// Const data in a section that the loader walks through; `used` keeps the linker from dropping it.
[[gnu::section(".preinit_array"), gnu::used]] const Entry kInstallEarly = install;

}  // namespace
