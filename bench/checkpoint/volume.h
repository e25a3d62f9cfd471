// The directory that the bench writes to, and the common part of all durable writes.
//
// Errors: UsageError for an unusable directory, IoError for what the system refuses. Threads: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "../shared/temporary_folder.h"

namespace holdfast::bench {

// "ext4 on /dev/vda".
std::string file_system_of(const std::filesystem::path& directory);

// UsageError unless it exists, is writable and lies on a disk: tmpfs keeps nothing.
void check_directory(const std::filesystem::path& directory);
std::uint64_t free_bytes(const std::filesystem::path& directory);
// UsageError if there is less.
void require_room(const std::filesystem::path& directory, std::uint64_t bytes, const std::string& what_for);

// A folder of the bench; its destructor removes it with its content.
class Scratch : public TemporaryFolder {
 public:
  using TemporaryFolder::TemporaryFolder;
  std::filesystem::path folder(const std::string& name) const;  // creates it
};

void sync_path(const std::filesystem::path& path);  // fsync of a file or directory
// The end of a durable write: fsync, rename, fsync of the directory.
void make_durable(const std::filesystem::path& temporary, const std::filesystem::path& final);
// Removes the file from the page cache.
void drop_cached(const std::filesystem::path& file);
// Waits until earlier measurements have reached the disk (dirty pages, the journal, discards), so that the
// next one does not pay for them.
void settle(const std::filesystem::path& directory);

// Throws Interrupted after SIGINT or SIGTERM, so that scratch folders are removed. Call catch_signals()
// first, then this between repetitions.
struct Interrupted {};
void catch_signals();
void stop_if_interrupted();

}  // namespace holdfast::bench
