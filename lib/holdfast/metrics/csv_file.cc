#include "holdfast/metrics/csv_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/metrics/csv_row.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::size_t kBlock = 1u << 18;                             // bytes; few system calls, little memory
constexpr std::string_view kTooLong = "a line longer than a block";  // replaces such a line; it is no row

using Visit = std::function<bool(std::string_view line, bool closed)>;

// Calls `visit` with each line until it returns false. Only the last line can lack its newline.
void for_each_line(const File& file, const Visit& visit) {
  std::vector<char> block(kBlock);
  std::size_t held = 0;
  bool skipping = false;
  for (std::uint64_t offset = 0;;) {
    const std::size_t count = file.read_at(std::as_writable_bytes(std::span(block).subspan(held)), offset);
    offset += count;
    std::string_view text(block.data(), held + count);
    for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      std::string_view line = text.substr(0, end);
      if (line.ends_with('\r')) line.remove_suffix(1);  // an editor changed the line ends
      if (!std::exchange(skipping, false) && !visit(line, true)) return;
      text.remove_prefix(end + 1);
    }
    if (count == 0) {
      if (!text.empty() && !skipping) visit(text, false);
      return;
    }
    // A line that fills the whole block is no row of ours. Skip to its end instead of growing the memory.
    if (text.size() == block.size()) {
      if (!std::exchange(skipping, true) && !visit(kTooLong, true)) return;
      text = {};
    }
    if (!text.empty()) std::memmove(block.data(), text.data(), text.size());
    held = text.size();
  }
}

// Copies the rows that stay from the old file to the new one.
class Copy {
 public:
  Copy(File& to, const CsvPosition& position) : to_(to), position_(position) {
    buffer_.append(kCsvHeader) += '\n';
  }

  void from(const File& old) {
    for_each_line(old, [&](std::string_view line, bool closed) {
      if (std::exchange(in_header_, false)) return header(line, closed);
      return row(line, closed);
    });
  }
  void finish() {
    flush();
    // Durable before it replaces the old file, so that a crash leaves one of the two whole.
    to_.sync();
  }

  std::uint64_t end() const { return written_ + buffer_.size(); }
  std::uint64_t evaluation() const { return evaluation_; }
  std::int64_t last_step() const { return last_step_; }
  std::int64_t dropped() const { return dropped_; }
  // Part of the old file's new name. Empty if the old file holds nothing that the new one lacks.
  std::string aside() const {
    if (!aside_.empty()) return aside_;
    if (unreadable_) return "unreadable";
    if (dropped_ > 0 && position_.keep_dropped) return "step-" + std::to_string(highest_);
    return {};
  }

 private:
  bool header(std::string_view line, bool closed) {
    // An unclosed beginning of the header is what a crash leaves, so that file holds nothing.
    if (closed && line == kCsvHeader) return true;
    if (closed || !kCsvHeader.starts_with(line)) aside_ = "other-columns";
    return false;
  }

  bool row(std::string_view line, bool closed) {
    std::optional<CsvRow> row = parse_csv_row(line);
    if (!row) {
      // An empty line or a torn last one is no loss; any other line that is no row is kept aside.
      unreadable_ = unreadable_ || (closed && !line.empty());
      return true;
    }
    // Attempt numbers only grow, so a row with this attempt's number or a higher one is of another run.
    if (position_.attempt > 0 && row->attempt >= position_.attempt) return restart();
    if (row->step > position_.step) {
      ++dropped_;
      highest_ = std::max(highest_, row->step);
      return true;
    }
    // Steps must grow and rows be whole; otherwise somebody changed the file, and the old one stays beside.
    if (row->step <= last_step_ || (closed && !row->whole)) unreadable_ = true;
    if (row->step > last_step_) keep(*row, closed);
    return true;
  }

  void keep(const CsvRow& row, bool closed) {
    last_step_ = row.step;
    evaluation_ = end() + row.fixed.size();
    // A torn last row gets an empty evaluation, so that every row has all columns.
    buffer_.append(row.fixed).append(closed ? row.evaluation : kCsvNoEvaluation) += '\n';
    if (buffer_.size() >= kBlock) flush();
  }

  // The file belongs to another run: keep none of its rows here.
  bool restart() {
    aside_ = "other-run";
    to_.truncate(0);
    written_ = 0;
    buffer_.assign(kCsvHeader) += '\n';
    last_step_ = -1;
    return false;
  }

  void flush() {
    to_.write_at(std::as_bytes(std::span(buffer_)), written_);
    written_ += buffer_.size();
    buffer_.clear();
  }

  File& to_;
  const CsvPosition& position_;
  std::string buffer_;
  std::uint64_t written_ = 0;
  std::uint64_t evaluation_ = 0;
  std::int64_t last_step_ = -1;
  std::int64_t dropped_ = 0;
  std::int64_t highest_ = 0;
  std::string aside_;
  bool in_header_ = true;
  bool unreadable_ = false;
};

void remove(Directory& directory, const std::string& name) noexcept {
  try {
    directory.unlink(name);
  } catch (...) {  // the next resume tries again
  }
}

// Renames the old file, and logs its new name.
void keep_aside(Directory& directory, const std::filesystem::path& path, const std::string& why) {
  const std::string begin = path.stem().string() + '.' + why;
  std::string name = begin + path.extension().string();
  // Never over a file that an earlier resume has kept.
  for (int number = 2; !directory.rename_new(path.filename().string(), name); ++number) {
    name = begin + '-' + std::to_string(number) + path.extension().string();
  }
  log_warning("{} is written anew; the old file is kept beside it as {}", path, name);
}

}  // namespace

void CsvFile::check(FileSystem& file_system, const std::filesystem::path& path) {
  if (!path.has_filename()) throw IoError("open", path, EISDIR);
  const auto directory = file_system.open_directory(folder_of(path), false);
  const auto found = directory ? directory->status(path.filename().string()) : std::nullopt;
  if (!found || found->kind == FileKind::regular) return;
  throw IoError("open", path, found->kind == FileKind::directory ? EISDIR : EINVAL,
                "rows are written to a regular file only: give another name");
}

CsvFile::CsvFile(FileSystem& file_system, const std::filesystem::path& path, const CsvPosition& position)
    : path_(path) {
  check(file_system, path);
  const std::shared_ptr<Directory> directory = file_system.make_shared_directory(folder_of(path));
  const std::string name = path.filename().string();
  // Fixed, so that a killed run leaves at most one such file.
  const std::string temporary = name + ".tmp";
  // If the old file is gone, a process was killed between keep_aside() and rename_over(): its copy is
  // complete.
  if (!directory->status(name) && directory->status(temporary)) directory->rename_new(temporary, name);
  directory->unlink(temporary);
  file_ = directory->open(temporary, OpenMode::create_shared);
  // The name was unlinked a moment ago, so another process writes the same file.
  if (file_ == nullptr) throw IoError("create", directory->path() + "/" + temporary, EEXIST);

  Copy copy(*file_, position);
  try {
    if (const auto replaced = directory->status(name)) file_->take_access_of(*replaced);
    if (const auto old = directory->open(name, OpenMode::read)) copy.from(*old);
    copy.finish();
  } catch (...) {
    remove(*directory, temporary);  // a full disk has no space for it
    throw;
  }
  if (const std::string why = copy.aside(); !why.empty()) keep_aside(*directory, path, why);
  // Last: until here the old file is complete under its name.
  // An older process that still writes then writes into the old file.
  directory->rename_over(temporary, name);
  directory_ = directory;
  end_ = copy.end();
  evaluation_ = copy.evaluation();
  last_step_ = copy.last_step();
  if (copy.dropped() > 0) {
    log_info("{}: {} rows of steps after {} are dropped; those steps are computed again", path,
             copy.dropped(), position.step);
  }
  if (last_step_ >= 0 && last_step_ < position.step) {
    log_warning(
        "{}: steps {} to {} have no row: their machine vanished before the rows were on its disk, or the "
        "file "
        "could not be written",
        path, last_step_ + 1, position.step);
  }
}

std::function<void()> CsvFile::sync() const {
  return [file = file_, directory = directory_] {
    file->sync();
    directory->sync();  // the name, which is new at each start
  };
}

void CsvFile::append(std::string_view row, std::size_t fixed, std::int64_t step) {
  try {
    file_->write_at(std::as_bytes(std::span(row)), end_);
  } catch (const IoError& error) {
    cut_to(end_);
    throw IoError(error.operation(), path_, error.code());  // with the final name, not the temporary one
  }
  evaluation_ = end_ + fixed;
  end_ += row.size();
  last_step_ = step;
}

void CsvFile::complete(std::string_view text) {
  // If the evaluation cannot be written, an empty one replaces it, so that the row stays valid.
  constexpr std::string_view kNone = ",\n";
  try {
    file_->write_at(std::as_bytes(std::span(text)), evaluation_);
  } catch (const IoError& error) {
    try {
      file_->write_at(std::as_bytes(std::span(kNone)), evaluation_);
    } catch (const IoError&) {  // the next resume repairs the row
    }
    cut_to(evaluation_ + kNone.size());
    throw IoError(error.operation(), path_, error.code());
  }
  const std::uint64_t end = evaluation_ + text.size();
  if (end < std::exchange(end_, end)) file_->truncate(end);  // an earlier evaluation of the step was longer
}

void CsvFile::cut_to(std::uint64_t length) noexcept {
  try {
    file_->truncate(length);
  } catch (...) {  // the next resume drops the torn row
  }
}

}}  // namespace holdfast::v0_2
