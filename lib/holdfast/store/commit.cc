#include "holdfast/store/commit.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/names.h"

namespace holdfast::inline v1 {

namespace {

// Steps only grow within an attempt. An older one that came again would find its name taken, and be read
// back.
constexpr std::size_t kRemembered = 16;

bool no_room(const IoError& error) { return error.code() == ENOSPC || error.code() == EDQUOT; }

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
  const auto file = open_temporary(request);
  std::string name = temporaries_.back();
  if (request.opened) request.opened(name);
  request.write(*file);
  file->sync();
  file->close();
  return name;
}

template <class Work>
void Committer::with_room(const Work& work) {
  const bool freeing = reaper_.busy();
  try {
    work();
  } catch (const IoError& error) {
    if (!freeing || !no_room(error)) throw;
    reaper_.drain();  // what was deleted just now may be the room that is wanting
    work();
  }
}

std::unique_ptr<File> Committer::open_new(std::string_view label) {
  std::unique_ptr<File> file;
  with_room([&] {
    while (!file) {
      // Known before it exists: a create that reports failure may have happened.
      temporaries_.push_back(
          temporary_name(attempt_.number(), std::string(label) + "-" + std::to_string(++serial_)));
      file = directory_.run().open(temporaries_.back(), OpenMode::create_direct);
    }
  });
  return file;
}

std::unique_ptr<File> Committer::open_temporary(const CommitRequest& request) {
  auto file = open_spare(request.bytes);
  if (!file) file = open_new("step-" + std::to_string(request.step));
  with_room([&] { file->reserve(request.bytes); });
  return file;
}

void Committer::try_out(std::uint64_t bytes, const std::function<void(File&)>& write) {
  directory_.require_sound();
  if (attempt_.superseded()) throw SupersededError(attempt_.superseded_by());
  try {
    const auto file = open_new("trial");
    with_room([&] { file->reserve(bytes); });
    write(*file);
    file->sync();
    file->close();
  } catch (...) {
    remove_abandoned();
    throw;
  }
  remove_abandoned();
}

// nullptr: there is none, or it cannot be used; it is removed with the other temporary files.
std::unique_ptr<File> Committer::open_spare(std::uint64_t bytes) {
  if (!spare_) return nullptr;
  temporaries_.push_back(*std::exchange(spare_, std::nullopt));
  // A successor that claimed before this look may have the file open, and be about to start from it; one that
  // claims later finds no checkpoint of that name.
  attempt_.look();
  try {
    auto file = directory_.run().open(temporaries_.back(), OpenMode::overwrite_direct);
    const auto status = directory_.run().status(temporaries_.back());
    if (!file || !status) {
      attempt_.look();
      attempt_.supersede("its temporary file " + temporaries_.back() + " was removed");
    }
    // Somebody gave it another name meanwhile, to keep it.
    if (status->links != 1) return nullptr;
    if (file->size() > bytes) file->truncate(bytes);
    return file;
  } catch (const IoError& error) {
    const int code = error.code();  // EAGAIN: a lease of a file server
    if (code != EACCES && code != EPERM && code != ETXTBSY && code != EAGAIN) throw;
    log_debug("a new file instead of the recycled one: {}", error.what());
    return nullptr;
  }
}

bool Committer::recycle(FileId id) {
  if (spare_) return false;
  const std::string name = temporary_name(attempt_.number(), "spare-" + std::to_string(++serial_));
  const std::string old_name = checkpoint_name(id);
  const auto status = directory_.run().status(old_name);
  if (!status || status->links != 1) return false;
  attempt_.look();
  // As in open_temporary().
  temporaries_.push_back(name);
  try {
    if (!directory_.run().rename_new(old_name, name)) return false;
  } catch (const IoError& error) {
    if (error.code() != ENOENT) throw;
    return false;
  }
  directory_.sync();
  spare_ = name;
  std::erase(temporaries_, name);
  log_debug("{} is overwritten by the next save", old_name);
  return true;
}

void Committer::drop_spare() noexcept {
  if (!spare_) return;
  try {
    reaper_.unlink(directory_.run(), *spare_);
  } catch (const std::exception& error) {
    log_debug("a temporary file stays for the next attempt to remove: {}", what_of(error));
  }
  spare_.reset();
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
          .finite = verdict.finite,
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
      reaper_.unlink(directory_.run(), name);
      return true;
    } catch (const std::exception& error) {
      log_debug("a temporary file stays for now: {}", error.what());
      return false;
    }
  });
}

}  // namespace holdfast::inline v1
