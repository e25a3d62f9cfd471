// What must be known about a volume before a run trusts its checkpoints to it: is it there at all, and is it
// the volume that was meant?
//
// Nothing here changes the volume.
// Threads: free functions; the file system and the clock decide.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/io/file_system.h"

namespace holdfast::inline v1 {

struct MountWaitOptions {
  Duration limit =
      std::chrono::minutes(10);  // a volume takes up to minutes to attach after a machine's start
  Duration poll = std::chrono::seconds(1);
  // Called before every wait with the time waited so far. False ends the waiting (an interruption).
  std::function<bool(Duration waited)> go_on = {};
};

enum class MountWait { mounted, timed_out, stopped };

// Waits until `mount` is the root of a mounted file system. Says once that it waits, and every 30 s that it
// still does.
MountWait wait_for_mount(const FileSystem& file_system, Clock& clock, const std::filesystem::path& mount,
                         const MountWaitOptions& options = {});

// UsageError unless `directory` lies beneath `mount` (as written, and after links are resolved): a run that
// waits for one volume and writes to another would be lost with the machine.
void check_beneath_mount(const std::filesystem::path& directory, const std::filesystem::path& mount);

// A sentence for people when `directory` lies on the root file system, which usually ends with the machine.
std::optional<std::string> root_file_system_warning(const FileSystem& file_system,
                                                    const std::filesystem::path& directory);

}  // namespace holdfast::inline v1
