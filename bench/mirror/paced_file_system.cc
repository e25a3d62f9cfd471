#include "paced_file_system.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace holdfast::bench {
namespace {

class PacedFile final : public File {
 public:
  PacedFile(std::unique_ptr<File> file, WritePace& pace) : file_(std::move(file)), pace_(pace) {}
  std::uint64_t size() const override { return file_->size(); }
  std::size_t read_at(std::span<std::byte> to, std::uint64_t at) const override {
    return file_->read_at(to, at);
  }
  std::size_t read_uncached_at(std::span<std::byte> to, std::uint64_t at) const override {
    return file_->read_uncached_at(to, at);
  }
  void write_at(std::span<const std::byte> data, std::uint64_t at) override {
    file_->write_at(data, at);
    pace_.spend(data.size());
  }
  void reserve(std::uint64_t length) override { file_->reserve(length); }
  void truncate(std::uint64_t length) override { file_->truncate(length); }
  void sync() override { file_->sync(); }
  void let_others_read() override { file_->let_others_read(); }
  void close() override { file_->close(); }

 private:
  std::unique_ptr<File> file_;
  WritePace& pace_;
};

class PacedDirectory final : public Directory {
 public:
  PacedDirectory(std::unique_ptr<Directory> directory, WritePace& pace)
      : directory_(std::move(directory)), pace_(pace) {}
  const std::string& path() const override { return directory_->path(); }
  std::unique_ptr<File> open(std::string_view name, OpenMode mode) override {
    auto file = directory_->open(name, mode);
    return file ? std::make_unique<PacedFile>(std::move(file), pace_) : nullptr;
  }
  std::unique_ptr<Directory> open_directory(std::string_view name, bool create) override {
    auto directory = directory_->open_directory(name, create);
    return directory ? std::make_unique<PacedDirectory>(std::move(directory), pace_) : nullptr;
  }
  FileStatus own_status() const override { return directory_->own_status(); }
  std::optional<FileStatus> status(std::string_view name) const override { return directory_->status(name); }
  std::vector<DirectoryEntry> list() const override { return directory_->list(); }
  bool rename_new(std::string_view from, std::string_view to) override {
    return directory_->rename_new(from, to);
  }
  void rename_over(std::string_view from, std::string_view to) override { directory_->rename_over(from, to); }
  bool unlink(std::string_view name) override { return directory_->unlink(name); }
  void sync() override { directory_->sync(); }

 private:
  std::unique_ptr<Directory> directory_;
  WritePace& pace_;
};

}  // namespace

void WritePace::spend(std::uint64_t bytes) {
  if (limit_ <= 0) return;
  using std::chrono::nanoseconds;
  using Clock = std::chrono::steady_clock;
  const auto now = std::chrono::duration_cast<nanoseconds>(Clock::now().time_since_epoch()).count();
  std::int64_t until = 0;
  {
    const MutexLock lock(mutex_);
    const auto cost = static_cast<std::int64_t>(static_cast<double>(bytes) / limit_ * 1e3);
    // The write itself is a part of its time.
    free_ns_ = (free_ns_ == 0 ? now : std::max(free_ns_, now - cost)) + cost;
    until = free_ns_;
  }
  if (until > now) std::this_thread::sleep_for(nanoseconds(until - now));
}

std::unique_ptr<Directory> PacedFileSystem::open_directory(const std::filesystem::path& path, bool create) {
  auto directory = real().open_directory(path, create);
  return directory ? std::make_unique<PacedDirectory>(std::move(directory), pace_) : nullptr;
}

std::unique_ptr<File> PacedFileSystem::open_file(const std::filesystem::path& path, OpenMode mode) {
  auto file = real().open_file(path, mode);
  return file ? std::make_unique<PacedFile>(std::move(file), pace_) : nullptr;
}

}  // namespace holdfast::bench
