// What the commands report about one checkpoint file.
//
// Damage counts only if two reads from the device agree; a first read that differs becomes a `remark`. A file
// in a run directory must match its name, so a copy under another name counts as damaged.
//
// Errors: all findings about a file are values, including errors of the operating system. open_checkpoint
// throws IoError for a missing path. Threads: one per file.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/cli/files/metered_file.h"
#include "holdfast/format/reader.h"
#include "holdfast/io/file_system.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {

enum class FileState { ok, damaged, newer, unreadable };
std::string word_of(FileState state);  // "ok"

struct Examined {
  FileState state = FileState::ok;
  std::string reason;                    // why it is not ok; one line
  std::string remark;                    // set if it is ok, but something is worth reporting
  std::optional<CheckpointIndex> index;  // set if header and index are valid
};

enum class Depth { index, every_byte };

// `name`: the file's name without folders.
Examined examine(const File& file, const std::string& name, Depth depth,
                 std::atomic<std::uint64_t>* progress = nullptr);

// Opens and examines the file in one call. A file that cannot be opened is `unreadable`.
Examined examine(Directory& directory, const std::string& name, Depth depth,
                 std::atomic<std::uint64_t>* progress = nullptr, ReadLimit* limit = nullptr);

// Age of the recorded state, by the time in the file; "-" if the file has none.
std::string age_of(const Examined& examined);
std::optional<double> age_in_seconds(const Examined& examined);
// When the state was staged, by that machine's wall clock.
std::optional<WallTime> staged_at(const Examined& examined);

struct Listed {
  std::string name;
  FileId id;
  std::uint64_t bytes = 0;
};
struct Listing {
  std::vector<Listed> checkpoints;   // newest first
  std::vector<std::string> damaged;  // names that recovery moved aside
};
Listing list_checkpoints(const Directory& directory);

// A path as messages show it: no control characters, at most 4,096 characters.
std::string shown(const std::filesystem::path& path);
std::string spec_text(const TensorSpec& spec);  // "float32 [64, 3, 7, 7]"

// Throws IoError if the directory cannot be opened.
std::unique_ptr<Directory> open_run_directory(const std::filesystem::path& path);
std::unique_ptr<File> open_checkpoint(const std::filesystem::path& path);

// Opens a file with a valid header and index. Otherwise throws Error with the file's name and the exit code
// ExitCode::difference for damage, ExitCode::unreadable for everything else.
struct Opened {
  std::unique_ptr<File> file;
  CheckpointIndex index;
};
Opened open_index(const std::filesystem::path& path);
// Opens a file, with ExitCode::unreadable for damage too: 1 would mean that two files differ.
Opened open_for_comparison(const std::filesystem::path& path);

// `state=` of the whole training state, computed from the index alone.
Digest state_digest_of(const CheckpointIndex& index);

}}  // namespace holdfast::v0_2
