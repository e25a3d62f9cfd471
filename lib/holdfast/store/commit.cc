#include "holdfast/store/commit.h"

#include <algorithm>
#include <cerrno>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/names.h"

namespace holdfast::inline v1 {

namespace {

// Steps only grow within an attempt. An older one that came again would find its name taken, and be read
// back.
constexpr std::size_t kRemembered = 16;

}  // namespace

CheckpointInfo Committer::commit(const CommitRequest& request) {
  if (request.step < 0) throw Error("commit of step " + std::to_string(request.step) + ", before the first");
  const auto known = acknowledged_.find(request.step);
  if (known != acknowledged_.end()) return known->second;
  directory_.require_sound();
  if (attempt_.superseded()) throw SupersededError(attempt_.superseded_by());
  remove_abandoned();
  try {
    const std::string temporary = write_temporary(request);
    CheckpointInfo checkpoint = read_back(temporary, request);
    attempt_.look();
    publish(temporary, request, checkpoint);
    directory_.sync();
    attempt_.look();
    acknowledged_.emplace(request.step, checkpoint);
    if (acknowledged_.size() > kRemembered) acknowledged_.erase(acknowledged_.begin());
    remove_abandoned();
    return checkpoint;
  } catch (...) {
    remove_abandoned();
    throw;
  }
}

std::string Committer::write_temporary(const CommitRequest& request) {
  std::string name;
  std::unique_ptr<File> file;
  while (!file) {
    name = temporary_name(attempt_.number(),
                          "step-" + std::to_string(request.step) + "-" + std::to_string(++serial_));
    // Known before it exists: a create that reports failure may have happened.
    temporaries_.push_back(name);
    file = directory_.run().open(name, OpenMode::create_direct);
  }
  file->reserve(request.bytes);
  request.write(*file);
  file->sync();
  file->close();
  return name;
}

CheckpointInfo Committer::read_back(const std::string& name, const CommitRequest& request) {
  const auto file = directory_.run().open(name, OpenMode::read);
  if (!file) {
    attempt_.look();
    attempt_.supersede("its temporary file " + name + " was removed");
  }
  const auto depth = read_back_ == ReadBack::all ? Verifier::Depth::full : Verifier::Depth::head;
  const Verdict verdict = verifier_.inspect(*file, depth, true);
  const bool good = verdict.kind == Verdict::Kind::good;
  if (!good || verdict.step != request.step || verdict.attempt != attempt_.number()) {
    throw IoError(
        "read back", directory_.path_of(name), EIO,
        "the device does not hold what was written (" +
            (good ? "step " + std::to_string(verdict.step) + " of attempt " + std::to_string(verdict.attempt)
                  : verdict.reason) +
            "); the file was given up, look at dmesg");
  }
  return {.step = request.step,
          .attempt = attempt_.number(),
          .name = checkpoint_name({.attempt = attempt_.number(), .step = request.step}),
          .bytes = file->size(),
          .ancestry = request.ancestry,
          .finite = request.finite && verdict.finite,
          .metrics = verdict.metrics,
          .unix_seconds = verdict.unix_seconds};
}

void Committer::publish(const std::string& temporary, const CommitRequest& request,
                        CheckpointInfo& checkpoint) {
  try {
    if (directory_.run().rename_new(temporary, checkpoint.name)) {
      std::erase(temporaries_, temporary);
      return;
    }
  } catch (const IoError& error) {
    if (error.code() != ENOENT) throw;
    attempt_.look();
    attempt_.supersede("its temporary file " + temporary + " was removed");
  }
  // Only this attempt makes that name: an earlier commit of this step was renamed, and failed afterwards. Its
  // bytes were synced before its rename, so it will do when it still verifies.
  checkpoint = read_back(checkpoint.name, request);
}

// Best effort, for the space alone: the names are this attempt's own, and the next one sweeps them. Allowed
// to a superseded attempt, too.
void Committer::remove_abandoned() noexcept {
  std::erase_if(temporaries_, [&](const std::string& name) {
    try {
      directory_.run().unlink(name);
      return true;
    } catch (const std::exception& error) {
      log_debug("a temporary file stays for now: {}", error.what());
      return false;
    }
  });
}

}  // namespace holdfast::inline v1
