#include "holdfast/cli/supervise/end_hook.h"

#include <algorithm>
#include <optional>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

bool asks_to_stop(const std::optional<int>& signal) {
  return signal && (*signal == SIGTERM || *signal == SIGINT);
}

}  // namespace

bool run_end_hook(const std::string& command, const HookContext& context, const EndHookOptions& options,
                  SignalInbox& inbox) {
  const SteadyTime end = Clock::real().now() + options.limit;
  Duration delay = options.first_delay;
  bool asked_to_stop = false;
  while (true) {
    // By a shell, because users write commands with variables and pipes.
    AttendedChild hook({"/bin/sh", "-c", command}, to_environment(context), inbox);
    while (!hook.ended() && Clock::real().now() < end) {
      const auto signal = inbox.wait(std::clamp<Duration>(end - Clock::real().now(), 0s, 1s));
      // The hook hears the signal, too: it may be in the middle of a call to the cloud, and ends in its own
      // way.
      if (signal) hook.send(*signal);
      asked_to_stop = asked_to_stop || asks_to_stop(signal);
    }
    if (!hook.ended()) {
      hook.end_all();
      log_error("--{}: it did not end within {} and was killed", context.hook,
                format_duration(options.limit));
      return false;
    }
    hook.leave_alone();  // it may have started background processes on purpose
    if (hook.ending().code() == 0) return true;
    // A try that could begin only after the limit is not waited for.
    const Duration left = end - Clock::real().now();
    if (asked_to_stop || left <= delay) {
      log_error("--{}: {}; not tried again", context.hook, to_text(hook.ending()));
      return false;
    }
    log_warning("--{}: {}; tried again in {}", context.hook, to_text(hook.ending()), format_duration(delay));
    const SteadyTime next = Clock::real().now() + delay;
    while (!asked_to_stop && Clock::real().now() < next) {
      asked_to_stop = asks_to_stop(inbox.wait(std::max<Duration>(next - Clock::real().now(), 0s)));
    }
    if (asked_to_stop) {
      log_error("--{}: asked to stop; not tried again", context.hook);
      return false;
    }
    // Growing delays, so that a control plane in trouble is not pressed by every machine of a fleet.
    delay = std::min(delay * 2, options.longest_delay);
  }
}

}}  // namespace holdfast::v0_2
