// A program whose constructors take long, as those of LibTorch do: until a signal comes. Exit code 75 when it
// was asked to stop. "never": it listens to no signal. "on": it works on after it has listened.
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <memory>
#include <string_view>

#include "holdfast/interruption/internal/signal_latch.h"
#include "holdfast/interruption/monitor.h"
#include "holdfast/interruption/signal_source.h"
#include "support/child_process.h"

namespace {

bool heard() {
  for (std::size_t i = 0; i < holdfast::internal::kHeardSignals.size(); ++i) {
    if (holdfast::internal::heard_signal(i).count > 0) return true;
  }
  return false;
}

struct SlowConstructor {
  SlowConstructor() {
    // A thread sanitizer loses the signal that comes while it prepares its first call of this kind.
    usleep(1);
    struct sigaction action {};
    sigaction(SIGTERM, nullptr, &action);
    holdfast::test::say(action.sa_handler != SIG_DFL ? "constructing with handlers" : "constructing");
    for (int i = 0; i < 1000 && !heard(); ++i) usleep(10'000);
  }
} slow_constructor;

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  const auto work_on = [] {
    for (int i = 0; i < 6000; ++i) usleep(10'000);
    return 1;
  };
  if (mode == "never") return work_on();
  int code = 0;
  {
    holdfast::Monitor monitor;
    monitor.add(std::make_unique<holdfast::SignalSource>());
    monitor.start();
    if (monitor.take_checkpoint_request()) holdfast::test::say("checkpoint");
    if (monitor.stop_requested()) {
      holdfast::test::say(monitor.reason());
      code = 75;
    }
  }
  holdfast::test::say("finished");
  if (mode == "on") return work_on();
  for (int i = 0; i < 20; ++i) usleep(10'000);
  return code;
}
