// What a volume promises, found out by trying: with a folder of its own in the given directory, which is gone
// when this returns. Files that are there are never touched, and a run that trains there only sees that the
// disk is busy.
//
// The folder's files are written as checkpoints are, through io/file_system.h. What that seam hides on
// purpose (whether O_DIRECT, fallocate or renameat2 did the work, or what stands in for them) is asked of the
// kernel directly, and rmdir, which no run ever needs, as well.
//
// Errors: IoError, except for what is found missing: that is the result. Interrupted by `go_on`: Error with
// ExitCode::interrupted.
// Threads: one; starts two that write and one that says what it waits for after 2 s, and joins them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/io/file_system.h"
#include "holdfast/io/mount_information.h"

namespace holdfast::inline v1 {

struct ProbeOptions {
  std::uint64_t bytes = std::uint64_t{1} << 30;  // to write for the speed; at most a quarter of what is free
  Duration longest = std::chrono::seconds(10);   // of that writing
  int commits = 15;
  // Called between two operations and blocks. False ends the probe, and its folder goes.
  std::function<bool()> go_on = {};
};

struct VolumeReport {
  std::string path;
  std::optional<MountEntry> mount;
  FileSystemKind kind;
  bool read_only = false;
  bool on_root = false;
  std::uint64_t bytes_in_all = 0;
  std::uint64_t bytes_free = 0;              // for this user
  std::optional<std::uint64_t> inodes_free;  // nullopt: made as needed

  // From here on only where it can be written.
  struct DirectIo {
    bool works = false;
    std::uint32_t memory_alignment = 0;  // bytes, as statx tells; 0: it does not
    std::uint32_t offset_alignment = 0;
  };
  DirectIo direct_io;
  bool reserves_space = false;     // fallocate
  bool renames_exclusive = false;  // renameat2(NOREPLACE)
  bool hard_links = false;
  bool syncs_directories = false;

  struct WriteSpeed {
    std::uint64_t bytes = 0;
    Duration time{};  // fsync included
  };
  std::optional<WriteSpeed> writing;
  struct CommitSpeed {
    int count = 0;
    Duration median{};
    Duration slowest{};
  };
  std::optional<CommitSpeed> committing;

  // Checkpoints can be committed here.
  bool fit() const;
};

VolumeReport probe_volume(FileSystem& file_system, const std::filesystem::path& directory,
                          const ProbeOptions& options = {});

struct VolumeRemark {
  enum class Weight { good, note, warning };
  Weight weight = Weight::good;
  std::string text;  // what it is, and what Holdfast does with it
};
std::vector<VolumeRemark> explain(const VolumeReport& report);

// Nanoseconds for one save of a state of that size; nullopt where nothing was measured.
std::optional<Duration> estimate_save(const VolumeReport& report, std::uint64_t state_bytes);

}  // namespace holdfast::inline v1
