// The kernel's list of mounts, and what is known about kinds of file systems by their name alone.
//
// Errors: none. Threads: pure functions, except mount_of(path), which reads /proc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast { inline namespace v0_2 {

struct MountEntry {
  std::string mount_point;
  std::string type;                  // "ext4", "nfs4", "fuse.sshfs"
  std::string source;                // "/dev/nvme1n1", "server:/export"
  std::vector<std::string> options;  // of this mount and of its file system
  bool has(std::string_view option) const;
};

// True if `path` is the directory `mount` or lies beneath it, by their names alone.
bool is_above(const std::filesystem::path& mount, const std::filesystem::path& path);
// Parses the text of /proc/self/mountinfo; skips lines of another form.
std::vector<MountEntry> parse_mountinfo(std::string_view text);
// The mount of an absolute path without links: the longest mount point above it. Of several mounts on that
// point the last one counts, because it hides the others.
std::optional<MountEntry> mount_of(const std::vector<MountEntry>& mounts, const std::filesystem::path& path);
// The mount of a path on this machine; nullopt if /proc is missing.
std::optional<MountEntry> mount_of(const std::filesystem::path& path);

struct FileSystemKind {
  std::string name;
  bool network = false;    // other machines may see and change files
  bool in_memory = false;  // nothing survives a reboot
  std::string remark;      // a sentence for people; empty if there is nothing special
};

// `magic` is f_type of statfs.
FileSystemKind kind_of_file_system(std::uint64_t magic);

}}  // namespace holdfast::v0_2
