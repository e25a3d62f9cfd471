// A mirror as `mirror`, `fetch` and `supervise --mirror` run it: with the format's verifier, in the idle I/O
// class, and ending on signals. Memory: at most 64 MB, whatever the size of a checkpoint.
//
// After the first SIGTERM or SIGINT it finishes what is newest, without a limit of speed, until the grace
// period ends (HOLDFAST_TERM_GRACE); after the second it stops at once.
// Errors: UsageError; those of the module mirror. Threads: the one that made it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/cli/attended_child.h"
#include "holdfast/mirror/mirror.h"
#include "holdfast/mirror/start.h"
#include "holdfast/writing/file_verifier.h"

namespace CLI {
class App;
}

namespace holdfast { inline namespace v0_2 {

// Adds --home-keep.
void add_home_keep(CLI::App& command, int& home_keep);

struct MirrorRequest {
  std::filesystem::path directory;
  std::string home;
  int home_keep = 3;
  std::filesystem::path home_mount = {};
  double limit = 0;  // MB/s; 0: none
  bool once = false;
};

class MirrorRun {
 public:
  // `also`: called whenever the mirror is polled.
  explicit MirrorRun(const MirrorRequest& request, std::function<void()> also = {});

  // 0: the newest checkpoint is home. 75: it was told to stop before.
  int mirror();
  PreparedStart prepare();  // until it works
  Mirror& copies() { return mirror_; }
  Pace& pace() { return pace_; }
  bool told_to_stop() const { return end_.has_value(); }
  void poll();

 private:
  static void work_quietly();

  const MirrorRequest request_;
  const std::function<void()> also_;
  SignalInbox inbox_;
  std::optional<SteadyTime> end_;  // after a signal
  FileVerifier verifier_;
  Pace pace_;
  std::unique_ptr<Home> home_;
  Mirror mirror_;
};

}}  // namespace holdfast::v0_2
