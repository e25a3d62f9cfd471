#include "holdfast/store/internal/run_directory.h"

#include <cerrno>
#include <optional>
#include <span>

#include "holdfast/base/error.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

void refuse_other_kinds(const Directory& run) {
  // Checked before it is opened: a link could lead the claims of two runs into one directory.
  const auto found = run.status(kAttemptsDirectory);
  if (!found || found->kind == FileKind::directory) return;
  throw RefusedError(run.path() + "/" + kAttemptsDirectory + " is " +
                     (found->kind == FileKind::symlink ? "a symbolic link" : "not a directory") +
                     "; a run directory belongs to Holdfast alone: remove it, or choose another directory");
}

}  // namespace

std::unique_ptr<RunDirectory> RunDirectory::open(FileSystem& file_system, const std::filesystem::path& path) {
  auto run = file_system.open_directory(path, false);
  if (!run) return nullptr;
  refuse_other_kinds(*run);
  std::unique_ptr<RunDirectory> directory(new RunDirectory(std::move(run)));
  directory->attempts_ = directory->run_->open_directory(kAttemptsDirectory, false);
  return directory;
}

std::unique_ptr<RunDirectory> RunDirectory::make(FileSystem& file_system, const std::filesystem::path& path) {
  std::unique_ptr<RunDirectory> directory(new RunDirectory(file_system.open_directory(path, true)));
  refuse_other_kinds(*directory->run_);
  directory->attempts_ = directory->run_->open_directory(kAttemptsDirectory, true);
  return directory;
}

void RunDirectory::sync() {
  // After one failed fsync nobody knows which names are durable, so a later success would mean nothing.
  require_sound();
  try {
    run_->sync();
  } catch (const IoError& error) {
    broken_ = true;
    broken_code_ = error.code();
    throw;
  } catch (...) {  // fsync failed, and there was no memory for the IoError
    broken_ = true;
    broken_code_ = EIO;
    throw;
  }
}

void RunDirectory::require_sound() const {
  if (!broken_) return;
  throw IoError(
      "fsync", path(), broken_code_,
      "an earlier sync of the run directory failed, so nothing more can be made durable until it is opened "
      "again");
}

std::optional<std::string> read_small(Directory& directory, const std::string& name, std::uint64_t limit) {
  // Before the file is opened: a huge or strange file must not be read at all.
  const auto status = directory.status(name);
  if (!status || status->kind != FileKind::regular || status->size > limit) return std::nullopt;
  const auto file = directory.open(name, OpenMode::read);
  if (!file) return std::nullopt;
  const std::uint64_t size = file->size();
  // Checked again, because the open file may be another one by now.
  if (size > limit) return std::nullopt;
  std::string text(size, '\0');
  text.resize(file->read_at(std::as_writable_bytes(std::span(text)), 0));
  return text;
}

}}}  // namespace holdfast::v0_2::internal
