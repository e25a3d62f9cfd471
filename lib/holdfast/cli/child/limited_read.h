// Reads a volume in a child process, for at most a given time. A volume whose server is gone blocks its
// reader for ever, and a reader that cannot be killed also delays the end of its process. So this process
// never touches the volume, and leaves such a child behind.
//
//   LimitedRead reading;
//   const auto text = reading.run(2s, [&] { return to_text(look_at_run(directory)); });  // nullopt: it hangs
//
// Errors: IoError without a process or a pipe. `read` must not throw. Threads: one, and no others before it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

class LimitedRead {
 public:
  // The text that `read` returned in the child; empty if the child died. nullopt if it took longer, or if an
  // earlier child still hangs: then no second one begins to wait.
  std::optional<std::string> run(Duration limit, const std::function<std::string()>& read);

 private:
  pid_t hanging_ = -1;
};

}}  // namespace holdfast::v0_2
