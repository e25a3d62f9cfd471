#include "holdfast/io/internal/volume_speed.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <thread>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// O_DIRECT wants memory that is aligned to its blocks.
constexpr std::uint64_t kMemoryPage = 4096;
// The block size of the writer of checkpoints, so that the probe measures what a save will see.
constexpr std::uint64_t kTransfer = 8 << 20;
constexpr std::uint64_t kSmall = 64 << 10;  // small, so that the commit dominates its time
// Two writes at a time keep a network volume busy, as the writer of checkpoints does.
constexpr int kWriters = 2;

struct FreePages {
  void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kMemoryPage}); }
};
using Pages = std::unique_ptr<std::byte, FreePages>;

// Bytes that a volume cannot compress; weights do not compress either.
Pages noise(std::uint64_t bytes, std::uint64_t seed) {
  Pages pages(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kMemoryPage})));
  // Xorshift (Marsaglia 2003): fast and good enough to be incompressible. Its state must not be 0.
  std::uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (std::uint64_t at = 0; at < bytes; at += sizeof state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(pages.get() + at, &state, sizeof state);
  }
  return pages;
}

// Makes each page different, so that a volume cannot deduplicate them.
void make_unique_pages(std::byte* block, std::uint64_t offset) {
  for (std::uint64_t at = 0; at < kTransfer; at += kMemoryPage) {
    const std::uint64_t number = offset + at;
    std::memcpy(block + at, &number, sizeof number);
  }
}

}  // namespace

void require_going_on(const ProbeOptions& options) {
  if (options.go_on && !options.go_on()) throw Error("the probe was interrupted", ExitCode::interrupted);
}

VolumeReport::WriteSpeed measure_writing(ProbeFolder& folder, std::uint64_t bytes,
                                         const ProbeOptions& options, StallWatch& watch) {
  const auto file = folder.directory().open("speed", OpenMode::create_direct);
  if (!file) throw Error(folder.path_of("speed") + ": it exists already; delete it");
  // Whole blocks only, because O_DIRECT has no other sizes.
  const std::uint64_t blocks = std::max<std::uint64_t>(1, bytes / kTransfer);
  file->reserve(blocks * kTransfer);
  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> written{0};
  std::atomic<bool> stop{false};
  std::array<std::exception_ptr, kWriters> failures;
  std::array<Pages, kWriters> buffers;
  for (int i = 0; i < kWriters; ++i)
    buffers[static_cast<std::size_t>(i)] = noise(kTransfer, static_cast<std::uint64_t>(i) + 1);

  // The noise is made before this: the processor's time for it is not the volume's.
  const SteadyTime start = Clock::real().now();
  const auto write = [&](std::size_t writer) {
    try {
      for (std::uint64_t i = next++; i < blocks && !stop; i = next++) {
        // At least one block is written even on a very slow volume; otherwise there is no speed to report.
        if (i > 0 && Clock::real().now() - start >= options.longest) break;
        require_going_on(options);
        watch.doing("a write to " + folder.path_of("speed"));
        make_unique_pages(buffers[writer].get(), i * kTransfer);
        file->write_at({buffers[writer].get(), kTransfer}, i * kTransfer);
        written += kTransfer;
      }
    } catch (...) {
      // An exception must not leave a thread. The other writer stops, and the first failure is thrown
      // below.
      failures[writer] = std::current_exception();
      stop = true;
    }
  };
  {
    std::thread other([&] { write(1); });
    write(0);
    other.join();
  }
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  watch.doing("the fsync of " + folder.path_of("speed"));
  // Within the time that is measured: a save is not done before its fsync.
  file->sync();
  file->close();
  const Duration time = Clock::real().now() - start;
  watch.doing("the deletion of " + folder.path_of("speed"));
  // At once, because the file may occupy a large part of the volume.
  folder.directory().unlink("speed");
  return {.bytes = written, .time = time};
}

VolumeReport::CommitSpeed measure_commits(ProbeFolder& folder, const ProbeOptions& options,
                                          StallWatch& watch) {
  const Pages bytes = noise(kSmall, 7);
  std::vector<Duration> times;
  for (int i = 0; i < options.commits; ++i) {
    require_going_on(options);
    watch.doing("a small commit in " + folder.path_of("."));
    const std::string temporary = "tmp-" + std::to_string(i);
    const std::string name = "commit-" + std::to_string(i);
    // These are a commit's calls in their order (store/commit.h, rule 2).
    const SteadyTime start = Clock::real().now();
    const auto file = folder.directory().open(temporary, OpenMode::create_direct);
    if (!file) throw Error(folder.path_of(temporary) + ": it exists already; delete it");
    file->reserve(kSmall);
    file->write_at({bytes.get(), kSmall}, 0);
    file->sync();
    file->close();
    folder.directory().rename_new(temporary, name);
    folder.directory().sync();
    times.push_back(Clock::real().now() - start);
    folder.directory().unlink(name);
  }
  if (times.empty()) return {};
  std::sort(times.begin(), times.end());
  return {
      .count = static_cast<int>(times.size()), .median = times[times.size() / 2], .slowest = times.back()};
}

}}}  // namespace holdfast::v0_2::internal
