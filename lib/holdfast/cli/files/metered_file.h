// A file whose reads are counted, for progress, and slowed down to `--read-limit`, so that a look at a
// checkpoint leaves the volume to the training that writes to it.
//
// Errors: those of the file; writing is a defect. Threads: as File; the limit counts all threads together.
#pragma once

#include <atomic>
#include <cstdint>

#include "holdfast/base/clock.h"
#include "holdfast/base/mutex.h"
#include "holdfast/io/file_system.h"
#include "holdfast/io/read_only_file.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace holdfast { inline namespace v0_2 {

void add_read_limit(CLI::App& command, double& megabytes_per_second);

// Bytes per second over several files; 0: no limit.
class ReadLimit {
 public:
  explicit ReadLimit(double megabytes_per_second) : rate_(megabytes_per_second * 1e6) {}
  // Sleeps until that many bytes may have been read.
  void wait_for(std::uint64_t bytes);

 private:
  const double rate_;
  Mutex mutex_;
  SteadyTime free_at_ HOLDFAST_GUARDED_BY(mutex_){};
};

class MeteredFile final : public ReadOnlyFile {
 public:
  // Both outlive it. `done` may be null.
  MeteredFile(const File& file, ReadLimit& limit, std::atomic<std::uint64_t>* done = nullptr)
      : file_(file), limit_(limit), done_(done) {}

  std::uint64_t size() const override { return file_.size(); }
  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override;
  std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const override;

 private:
  std::size_t count(std::size_t bytes) const;

  const File& file_;
  ReadLimit& limit_;
  std::atomic<std::uint64_t>* const done_;
};

}}  // namespace holdfast::v0_2
