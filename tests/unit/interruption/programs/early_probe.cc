// A program whose constructors take long, as those of LibTorch do: until a signal comes. Exit code 75 when it
// was asked to stop.
#include <unistd.h>

#include <csignal>
#include <memory>

#include "holdfast/interruption/monitor.h"
#include "holdfast/interruption/signal_source.h"
#include "support/child_process.h"

namespace {

struct SlowConstructor {
  SlowConstructor() {
    struct sigaction action {};
    sigaction(SIGTERM, nullptr, &action);
    holdfast::test::say(action.sa_handler != SIG_DFL ? "constructing with handlers" : "constructing");
    for (int i = 0; i < 1000 && usleep(10'000) == 0; ++i) {
    }
  }
} slow_constructor;

}  // namespace

int main() {
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
  for (int i = 0; i < 20; ++i) usleep(10'000);
  return code;
}
