#include "holdfast/store/commit.h"

#include <algorithm>
#include <cerrno>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/internal/no_room.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {

namespace {

// Steps only grow within an attempt, so a few are enough. An older step that comes again would find its name
// taken, and commit() would read that file back.
constexpr std::size_t kRemembered = 16;

}  // namespace

CheckpointInfo Committer::commit(const CommitRequest& request) {
  if (request.step < 0) throw Error("commit of step " + std::to_string(request.step) + ", before the first");
  const FileId id = id_of(request);
  const auto known = acknowledged_.find(id);
  // Somebody may have deleted the file of a copy; the run directory can give it again.
  if (known != acknowledged_.end() && (!request.copy_of || directory_.run().status(known->second.name))) {
    return known->second;
  }
  directory_.require_sound();
  // Before any file is made: a superseded attempt must leave the directory as it is.
  if (attempt_.superseded()) throw SupersededError(attempt_.superseded_by());
  // Space first: a temporary file of a failed save may be as large as this checkpoint.
  remove_abandoned();
  // Rule 2. The read-back precedes the rename: a file that the device lost must never get a checkpoint's
  // name. The rename is durable only after the directory's fsync. A claim may come in between, so look again:
  // a superseded attempt acknowledges nothing.
  try {
    const std::string temporary = write_temporary(request);
    CheckpointInfo checkpoint = read_back(temporary, request);
    attempt_.check_not_superseded();
    publish(temporary, request, checkpoint);
    directory_.sync();
    attempt_.check_not_superseded();
    acknowledged_.emplace(id, checkpoint);
    if (acknowledged_.size() > kRemembered) acknowledged_.erase(acknowledged_.begin());
    remove_abandoned();
    return checkpoint;
  } catch (...) {
    remove_abandoned();
    throw;
  }
}

FileId Committer::id_of(const CommitRequest& request) const {
  const FileId id = request.copy_of.value_or(FileId{.attempt = attempt_.number(), .step = request.step});
  if (id.step != request.step) throw Error("a copy of another step than its request says");
  return id;
}

std::string Committer::write_temporary(const CommitRequest& request) {
  // The temporary's name is known before the first byte, because other ranks write into the same file (rule
  // 13).
  const auto file = open_temporary(request);
  std::string name = temporaries_.back();
  if (request.opened) request.opened(name);
  request.write(*file);
  // Before close(), which cannot report what the device did (rule 3). Either failure abandons the file.
  file->sync();
  file->close();
  return name;
}

template <class Work>
void Committer::with_room(const Work& work) {
  // Asked before the work: blocks that become free during it may be too late for it.
  const bool freeing = reaper_.busy();
  try {
    work();
  } catch (const IoError& error) {
    if (!freeing || !internal::no_room(error)) throw;
    reaper_.drain();  // files that were deleted just now may be the space that is missing
    work();
  }
}

// Records the name before the file exists: a create that reports a failure may have made the file.
std::string Committer::new_name(std::string_view label) {
  temporaries_.push_back(
      temporary_name(attempt_.number(), std::string(label) + "-" + std::to_string(++serial_)));
  return temporaries_.back();
}

std::unique_ptr<File> Committer::open_new(std::string_view label) {
  std::unique_ptr<File> file;
  with_room([&] {
    while (!file) {
      file = directory_.run().open(new_name(label), OpenMode::create_direct);
    }
    // nullptr means that the name exists; the next one is new.
  });
  return file;
}

std::unique_ptr<File> Committer::open_temporary(const CommitRequest& request) {
  auto file = open_new("step-" + std::to_string(request.step));
  // Before the first byte, so that a full volume costs no half-written file.
  with_room([&] { file->reserve(request.bytes); });
  return file;
}

CheckpointInfo Committer::read_back(const std::string& name, const CommitRequest& request) {
  // Opened again by name: this also shows whether a newer attempt's sweep has removed it.
  const auto file = directory_.run().open(name, OpenMode::read);
  if (!file) {
    attempt_.check_not_superseded();
    attempt_.supersede("its temporary file " + name + " was removed");
  }
  const auto depth = read_back_ == ReadBack::all ? Verifier::Depth::full : Verifier::Depth::head;
  // From the device, because the page cache would return the bytes that it was given.
  const Verdict verdict = verifier_.inspect(*file, depth, true);
  const bool good = verdict.kind == Verdict::Kind::good;
  const FileId id = id_of(request);
  // A file that belongs to another step verifies as well, so compare its identity.
  if (!good || verdict.step != id.step || verdict.attempt != id.attempt) {
    throw IoError(
        "read back", directory_.path_of(name), EIO,
        "the device does not hold what was written (" +
            (good ? "step " + std::to_string(verdict.step) + " of attempt " + std::to_string(verdict.attempt)
                  : verdict.reason) +
            "); the file is discarded; check the device (dmesg)");
  }
  return {.step = request.step,
          .attempt = id.attempt,
          .name = checkpoint_name(id),
          .bytes = file->size(),
          .ancestry = request.copy_of ? verdict.ancestry : request.ancestry,
          .finite = verdict.finite,
          .metrics = verdict.metrics,
          .unix_seconds = verdict.unix_seconds};
}

void Committer::publish(const std::string& temporary, const CommitRequest& request,
                        CheckpointInfo& checkpoint) {
  if (request.before_rename) request.before_rename();
  if (request.replaces_itself) {
    directory_.run().rename_over(temporary, checkpoint.name);
    std::erase(temporaries_, temporary);
    return;
  }
  try {
    if (directory_.run().rename_new(temporary, checkpoint.name)) {
      // It has its final name now; remove_abandoned() must not delete it.
      std::erase(temporaries_, temporary);
      return;
    }
  } catch (const IoError& error) {
    if (error.code() != ENOENT) throw;
    attempt_.check_not_superseded();
    // If the target exists, a file server lost its reply and repeated a rename that had succeeded.
    if (!directory_.run().status(checkpoint.name)) {
      attempt_.supersede("its temporary file " + temporary + " was removed");
    }
  }
  // Only this attempt makes that name, so an earlier rename to it succeeded and a later step failed. Its
  // bytes were synced before the rename, so it counts if it still verifies.
  checkpoint = read_back(checkpoint.name, request);
  if (!names_in_doubt_ || request.copy_of) return;
  // The same checkpoint under a name that the next sync covers.
  directory_.run().rename_over(temporary, checkpoint.name);
  std::erase(temporaries_, temporary);
}

// Best effort, only for the space: the names belong to this attempt, and the next one sweeps them. A
// superseded attempt may do it too.
void Committer::remove_abandoned() noexcept {
  std::erase_if(temporaries_, [&](const std::string& name) {
    try {
      reaper_.unlink(directory_.run(), name);
      return true;
    } catch (const std::exception& error) {
      log_debug("a temporary file stays for now: {}", error.what());
      return false;
    }
  });
}

}}  // namespace holdfast::v0_2
