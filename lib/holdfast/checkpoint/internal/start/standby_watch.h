// Looks every two seconds whether a standby is ready to go on with this run (store/standby_sign.h), on a
// thread of its own. A sign counts while its text changes, so the clocks of the two machines may differ.
//
// Errors: none; what cannot be read is no sign. Threads: the training thread; `told` runs on the watch's
// thread, and never after stop() has returned.
#pragma once

#include <filesystem>
#include <functional>

#include "holdfast/checkpoint/internal/disk_thread.h"
#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class StandbyWatch {
 public:
  // A standby has become ready, or is so no more.
  using Told = std::function<void(bool ready)>;

  StandbyWatch() = default;
  StandbyWatch(const StandbyWatch&) = delete;
  StandbyWatch& operator=(const StandbyWatch&) = delete;

  // Call at most once. `file_system` outlives the process's last read.
  void start(FileSystem& file_system, const std::filesystem::path& run_directory, Told told) noexcept;
  // A read that hangs in the disk is left behind.
  void stop() noexcept { thread_.stop(DiskThread::kPatience); }

 private:
  DiskThread thread_;
};

}}}  // namespace holdfast::v0_2::internal
