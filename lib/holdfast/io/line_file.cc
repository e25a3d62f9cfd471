#include "holdfast/io/line_file.h"

#include <array>
#include <cerrno>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

bool ends_torn(const File& file) {
  const std::uint64_t size = file.size();
  if (size == 0) return false;
  std::array<std::byte, 1> last{};
  try {
    return file.read_at(last, size - 1) == 1 && last[0] != std::byte{'\n'};
  } catch (const IoError& error) {
    // A file that we may write but not read. An additional empty line does no harm.
    if (error.code() == EBADF) return true;
    throw;
  }
}

}  // namespace

LineFile::LineFile(FileSystem& file_system, const std::filesystem::path& path)
    : LineFile(file_system.open_file(path, OpenMode::append)) {}

LineFile::LineFile(std::unique_ptr<File> file) : file_(std::move(file)), torn_(ends_torn(*file_)) {}

void LineFile::append(std::string_view line) {
  buffer_.clear();
  // A newline first ends the torn line, so that only that line is lost and not this one too.
  if (torn_) buffer_ += '\n';
  buffer_.append(line) += '\n';
  // Until the write succeeds, a part of the line may be in the file.
  torn_ = true;
  file_->write_at(std::as_bytes(std::span(buffer_)), 0);
  torn_ = false;
}

}}  // namespace holdfast::v0_2
