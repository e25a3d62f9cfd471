// What the commands say about one checkpoint file.
//
// Damage is believed only when two reads from the device agree on it; a first read that differs is told in
// `remark`. A file in a run directory must be what its name says, so a copy under a wrong name is damage.
//
// Errors: everything about the file is a value, what the operating system refuses included. A path that does
// not exist is an IoError of open_checkpoint.
// Threads: one a file.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/format/reader.h"
#include "holdfast/io/file_system.h"
#include "holdfast/store/names.h"

namespace holdfast::inline v1 {

enum class FileState { ok, damaged, newer, unreadable };
std::string word_of(FileState state);  // "ok"

struct Examined {
  FileState state = FileState::ok;
  std::string reason;                    // why not ok, one line
  std::string remark;                    // ok, but worth telling
  std::optional<CheckpointIndex> index;  // present when the header and the index hold
};

enum class Depth { index, every_byte };

// `name` is the file's own, without folders.
Examined examine(const File& file, const std::string& name, Depth depth,
                 std::atomic<std::uint64_t>* progress = nullptr);

// Whatever was found, with `name` and `open` in one: a file that cannot be opened is unreadable.
Examined examine(Directory& directory, const std::string& name, Depth depth,
                 std::atomic<std::uint64_t>* progress = nullptr);

// How long ago its state was staged, by the time that it records; "-": it does not say.
std::string age_of(const Examined& examined);

struct Listed {
  std::string name;
  FileId id;
  std::uint64_t bytes = 0;
};
struct Listing {
  std::vector<Listed> checkpoints;   // newest first
  std::vector<std::string> damaged;  // names that recovery set aside
};
Listing list_checkpoints(const Directory& directory);

// The directory, or IoError.
std::unique_ptr<Directory> open_run_directory(const std::filesystem::path& path);
std::unique_ptr<File> open_checkpoint(const std::filesystem::path& path);

// The index of a file whose header and index hold; otherwise an Error that names the file, with exit code
// ExitCode::difference for damage and ExitCode::unreadable for the rest.
struct Opened {
  std::unique_ptr<File> file;
  CheckpointIndex index;
};
Opened open_index(const std::filesystem::path& path);

// `state=` of the whole training state, from the index alone.
Digest state_digest_of(const CheckpointIndex& index);

}  // namespace holdfast::inline v1
