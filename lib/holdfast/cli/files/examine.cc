#include "holdfast/cli/files/examine.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>
#include <utility>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/staging/run_record.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// hardware_concurrency() is 0 if it is not known.
int reading_threads() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 2u, 8u)); }

Examined examine_once(const File& file, Depth depth, std::atomic<std::uint64_t>* progress) {
  Examined examined;
  // From the device: the page cache may still hold what the disk no longer has.
  auto read = read_index(file, ReadMode::uncached);
  std::optional<Rejection> rejection;
  if (auto* const found = std::get_if<Rejection>(&read)) {
    rejection = std::move(*found);
  } else {
    examined.index = std::get<CheckpointIndex>(std::move(read));
    if (depth == Depth::every_byte) {
      rejection = verify_bytes(file, *examined.index, ReadMode::uncached, reading_threads(), progress);
    }
  }
  if (rejection) {
    // A newer format is no damage: an older program must not call a good file broken.
    examined.state = rejection->kind == Rejection::Kind::newer_format ? FileState::newer : FileState::damaged;
    examined.reason = std::move(rejection->reason);
  }
  return examined;
}

// Why the content does not match the name. Empty if it does, or if the name is not a checkpoint's.
std::string wrong_name(const CheckpointIndex& index, const std::string& name) {
  const auto id = parse_checkpoint_name(name);
  if (!id) return {};
  const Attribute* const attribute = index.attributes.find(kRunAttempt);
  const auto* const attempt = attribute == nullptr ? nullptr : std::get_if<std::int64_t>(&attribute->value);
  // A Checkpointer always records the attempt. Without one, only the step can contradict the name.
  if (index.step == id->step && (attempt == nullptr || *attempt == static_cast<std::int64_t>(id->attempt)))
    return {};
  return "holds step " + format_count(index.step) +
         (attempt == nullptr ? std::string() : " of attempt " + std::to_string(*attempt)) +
         ", which is not what its name says";
}

}  // namespace

std::string shown(const std::filesystem::path& path) { return printable(path.string(), 4096); }

std::string spec_text(const TensorSpec& spec) {
  return std::string(name_of(spec.dtype)) + " " + shape_text(spec.shape);
}

std::string word_of(FileState state) {
  constexpr std::array kWords = {"ok", "damaged", "newer", "unreadable"};
  return kWords.at(static_cast<std::size_t>(state));
}

Examined examine(const File& file, const std::string& name, Depth depth,
                 std::atomic<std::uint64_t>* progress) {
  try {
    Examined examined = examine_once(file, depth, progress);
    if (examined.state == FileState::damaged) {
      // A second look: damage on the volume shows twice.
      // Without progress: the bytes have been counted, and the line would pass 100 %.
      Examined again = examine_once(file, depth, nullptr);
      if (again.state == FileState::ok) {
        again.remark =
            "a first read differed (" + examined.reason + "): suspect the disk, its cable or the memory";
      }
      examined = std::move(again);
    }
    if (examined.state == FileState::ok) {
      examined.reason = wrong_name(*examined.index, name);
      if (!examined.reason.empty()) examined.state = FileState::damaged;
    }
    return examined;
  } catch (const Error& error) {
    return {FileState::unreadable, error.what(), {}, {}};
  }
}

Examined examine(Directory& directory, const std::string& name, Depth depth,
                 std::atomic<std::uint64_t>* progress, ReadLimit* limit) {
  try {
    const auto file = directory.open(name, OpenMode::read);
    if (file == nullptr) return {FileState::unreadable, "it was deleted meanwhile", {}, {}};
    if (limit == nullptr) return examine(*file, name, depth, progress);
    return examine(MeteredFile(*file, *limit), name, depth, progress);
  } catch (const Error& error) {
    return {FileState::unreadable, error.what(), {}, {}};
  }
}

std::optional<WallTime> staged_at(const Examined& examined) {
  const Attribute* const attribute = examined.index ? examined.index->attributes.find(kRunTime) : nullptr;
  const auto* const text = attribute == nullptr ? nullptr : std::get_if<std::string>(&attribute->value);
  return text == nullptr ? std::nullopt : parse_utc(*text);
}

std::optional<double> age_in_seconds(const Examined& examined) {
  const auto time = staged_at(examined);
  if (!time) return std::nullopt;
  return std::chrono::duration<double>(Clock::real().wall_now() - *time).count();
}

std::string age_of(const Examined& examined) {
  const auto time = staged_at(examined);
  return time ? format_duration(Clock::real().wall_now() - *time) : "-";
}

Listing list_checkpoints(const Directory& directory) {
  Listing listing;
  for (const DirectoryEntry& entry : directory.list()) {
    if (parse_damaged_name(entry.name)) listing.damaged.push_back(entry.name);
    const auto id = parse_checkpoint_name(entry.name);
    if (!id) continue;
    const auto status = directory.status(entry.name);
    // Retention of a living trainer may delete a file after it was listed.
    if (status) listing.checkpoints.push_back({entry.name, *id, status->size});
  }
  // The order of recovery: a newer attempt counts before a later step of an older one.
  const auto place = [](const Listed& listed) { return std::pair(listed.id.attempt, listed.id.step); };
  std::sort(listing.checkpoints.begin(), listing.checkpoints.end(),
            [&](const Listed& a, const Listed& b) { return place(a) > place(b); });
  std::sort(listing.damaged.begin(), listing.damaged.end());
  return listing;
}

std::unique_ptr<Directory> open_run_directory(const std::filesystem::path& path) {
  auto directory = FileSystem::real().open_directory(path, false);
  if (directory == nullptr) throw IoError("open", path.string(), ENOENT, "is the volume mounted?");
  return directory;
}

std::unique_ptr<File> open_checkpoint(const std::filesystem::path& path) {
  auto file = FileSystem::real().open_file(path, OpenMode::read);
  if (file == nullptr) throw IoError("open", path.string(), ENOENT);
  return file;
}

Opened open_index(const std::filesystem::path& path) {
  Opened opened{open_checkpoint(path), {}};
  Examined examined = examine(*opened.file, path.filename().string(), Depth::index);
  if (examined.state != FileState::ok) {
    throw Error(shown(path) + ": " + word_of(examined.state) + ": " + examined.reason,
                examined.state == FileState::damaged ? ExitCode::difference : ExitCode::unreadable);
  }
  opened.index = std::move(*examined.index);
  return opened;
}

Opened open_for_comparison(const std::filesystem::path& path) {
  try {
    return open_index(path);
  } catch (const Error& error) {
    // A comparison ends with 1 for "different", so damage must not end with 1 as well.
    throw Error(error.what(), ExitCode::unreadable);
  }
}

// The index has the digest of each tensor, so `state=` costs no read of the state.
Digest state_digest_of(const CheckpointIndex& index) {
  std::vector<TensorSpec> specs;
  std::vector<std::uint64_t> offsets;
  std::vector<Digest> digests;
  for (const IndexedTensor& tensor : index.tensors) {
    specs.push_back(tensor.spec);
    offsets.push_back(tensor.offset);
    digests.push_back(tensor.digest);
  }
  Snapshot snapshot;
  snapshot.layout = std::make_shared<ImageLayout>(std::move(specs), std::move(offsets), index.file_length);
  snapshot.attributes = index.attributes;
  return state_digest(snapshot, digests);
}

}}  // namespace holdfast::v0_2
