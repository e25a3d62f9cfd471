// Reads once a second what a mirror says in HOME_STATE.json, on a thread of its own: a volume that hangs
// stops it, and delays nothing. Without a mirror it looks every 10 s, because one may start later.
//
// Errors: none; without a thread nothing is known of HOME after the start. Threads: the training thread;
// `told` runs on the watch's thread (the first time inside start()), and never after stop() has returned.
#pragma once

#include <filesystem>
#include <functional>

#include "holdfast/base/clock.h"
#include "holdfast/checkpoint/internal/disk_thread.h"
#include "holdfast/io/file_system.h"
#include "holdfast/mirror/home_record.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class HomeWatch {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(1);
  static constexpr Duration kWithoutMirror = std::chrono::seconds(10);

  // The record has changed.
  using Told = std::function<void(const HomeRecord&)>;

  HomeWatch() = default;
  HomeWatch(const HomeWatch&) = delete;
  HomeWatch& operator=(const HomeWatch&) = delete;

  // Call at most once. `file_system` outlives the process's last read.
  void start(FileSystem& file_system, const std::filesystem::path& run_directory, Told told,
             Duration interval = kInterval, Duration without_mirror = kWithoutMirror) noexcept;
  // A read that hangs in the disk is left behind.
  void stop() noexcept { thread_.stop(DiskThread::kPatience); }

 private:
  DiskThread thread_;
};

}}}  // namespace holdfast::v0_2::internal
