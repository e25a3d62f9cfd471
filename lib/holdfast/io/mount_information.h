// What the kernel says about mounts, and what kinds of file systems there are: which promises a name alone
// tells.
//
// Threads: free functions, pure, except mount_of(path).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::inline v1 {

struct MountEntry {
  std::string mount_point;
  std::string type;                  // "ext4", "nfs4", "fuse.sshfs"
  std::string source;                // "/dev/nvme1n1", "server:/export"
  std::vector<std::string> options;  // of this mount and of its file system
  bool has(std::string_view option) const;
};

// The text of /proc/self/mountinfo. Lines that do not look like it are left out.
std::vector<MountEntry> parse_mountinfo(std::string_view text);
// The mount that an absolute path without links lies on: of the longest mount point above it the last one,
// which hides the others.
std::optional<MountEntry> mount_of(const std::vector<MountEntry>& mounts, const std::filesystem::path& path);
// The same on this machine; nullopt where /proc is missing.
std::optional<MountEntry> mount_of(const std::filesystem::path& path);

struct FileSystemKind {
  std::string name;
  bool network = false;    // other machines may see and change it
  bool in_memory = false;  // nothing survives a reboot
  std::string remark;      // a sentence for people; empty: nothing special
};

// By statfs's f_type.
FileSystemKind kind_of_file_system(std::uint64_t magic);

}  // namespace holdfast::inline v1
