#include "holdfast/cli/files/new_file.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/system/random_bytes.h"
#include "holdfast/base/text.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/format/layout.h"

namespace holdfast { inline namespace v0_2 {
namespace {

bool is_checkpoint(const File& file) {
  std::array<std::byte, kMagic.size()> start{};
  return file.read_at(start, 0) == start.size() &&
         std::string_view(reinterpret_cast<const char*>(start.data()), start.size()) == kMagic;
}

constexpr std::string_view kTemporary = ".holdfast-export-";

[[noreturn]] void refuse_existing(const std::string& path) {
  throw UsageError("--to " + shown(path) + ": it exists; --force replaces it");
}

}  // namespace

NewFile::NewFile(Directory& directory, std::string name, std::string temporary)
    : directory_(directory),
      name_(std::move(name)),
      temporary_(std::move(temporary)),
      file_(directory_.open(temporary_, OpenMode::create_shared)) {
  if (file_ == nullptr) {
    throw IoError("create", directory_.path() + "/" + temporary_, EEXIST,
                  "delete what an earlier export left");
  }
  // Now: a file that only its owner may read must not be readable while it is written.
  if (const auto replaced = directory_.status(name_)) file_->take_access_of(*replaced);
}

NewFile::~NewFile() {
  if (published_) return;
  // Closed first: NFS keeps a deleted file that is still open, under another name.
  file_ = nullptr;
  try {
    directory_.unlink(temporary_);
  } catch (const Error& error) {
    log_warning("a part of the export is left behind: {}", error.what());
  }
}

std::string NewFile::new_temporary() {
  // Not the process's number: in a container that is the same each time.
  static std::atomic<int> count{0};
  return std::string(kTemporary) + in_hex(random_bytes(8)) + "-" + std::to_string(count++);
}

bool NewFile::is_temporary(const std::string& name) {
  if (!name.starts_with(kTemporary)) return false;
  const std::string_view rest = std::string_view(name).substr(kTemporary.size());
  const std::size_t dash = rest.find('-');
  return dash != std::string_view::npos && dash > 0 && rest.find_first_not_of("0123456789abcdef") == dash &&
         parse_int(rest.substr(dash + 1)).value_or(-1) >= 0;
}

void NewFile::complete() {
  size_ = file_->size();
  file_->sync();
  file_->close();
  file_ = nullptr;
}

void NewFile::publish(bool replace) {
  // Before the rename: after a crash the name must not stand for a part of the file.
  if (file_ != nullptr) complete();
  if (replace) {
    directory_.rename_over(temporary_, name_);
  } else if (!directory_.rename_new(temporary_, name_)) {
    // Somebody may have made the file since check_replaceable().
    refuse_existing(directory_.path() + "/" + name_);
  }
  // From here on the temporary name is gone, so the destructor has nothing to delete.
  published_ = true;
  directory_.sync();
}

void check_replaceable(Directory& directory, const std::filesystem::path& to, bool force) {
  const std::string named = "--to " + shown(to);
  const std::string name = to.filename().string();
  const auto status = directory.status(name);
  if (!status) return;
  // A rename would replace a device by a plain file.
  if (status->kind != FileKind::regular) throw UsageError(named + ": it is no plain file");
  if (!force) refuse_existing(to.string());
  const auto file = directory.open(name, OpenMode::read);
  if (file != nullptr && is_checkpoint(*file)) {
    throw UsageError(named + ": that is a checkpoint, which is never replaced");
  }
}

}}  // namespace holdfast::v0_2
