// The directory that is written to, and what every durable write here has in common.
//
// Errors: UsageError for a directory that cannot serve, IoError for what the system refuses. Threads: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace holdfast::bench {

// "ext4 on /dev/vda".
std::string file_system_of(const std::filesystem::path& directory);

// UsageError unless it is there, can be written to and lies on a disk: in tmpfs nothing is durable.
void check_directory(const std::filesystem::path& directory);
std::uint64_t free_bytes(const std::filesystem::path& directory);
// UsageError when there is less.
void require_room(const std::filesystem::path& directory, std::uint64_t bytes, const std::string& what_for);

// A folder of the bench's own, removed with all in it when the object goes.
class Scratch {
 public:
  explicit Scratch(const std::filesystem::path& beneath);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path folder(const std::string& name) const;  // made

 private:
  std::filesystem::path path_;
};

void sync_path(const std::filesystem::path& path);  // fsync of a file or directory
// The rest of a durable write: fsync, rename, fsync of the directory.
void make_durable(const std::filesystem::path& temporary, const std::filesystem::path& final);
// Nothing of the file stays in the page cache.
void drop_cached(const std::filesystem::path& file);
// Lets what an earlier measurement left behind (dirty pages, the journal, discards) reach the disk, so that
// the next one does not pay for it.
void settle(const std::filesystem::path& directory);

// Throws Interrupted once SIGINT or SIGTERM has come, so that scratch folders are removed. Called between
// repetitions; catch_signals() first.
struct Interrupted {};
void catch_signals();
void stop_if_interrupted();

}  // namespace holdfast::bench
