// Where the time of a restore goes: read_index + read_snapshot against a raw O_DIRECT read of the same file.
//
//   build/release/bin/bench_restore FOLDER [MB] [REPETITIONS]
//
// Raw reads in 8 MiB blocks on 1, 2 and 4 threads, into buffers that were used before and into memory that is
// mapped for it (a restore begins with an empty process: its pages have to be faulted in, and zeroed, too),
// then ours. All take turns; printed are medians. The file lies in FOLDER while it runs.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/format/image_writer.h"
#include "holdfast/format/layout.h"
#include "holdfast/format/reader.h"
#include "median.h"

namespace {

using holdfast::bench::median;

using namespace holdfast;

constexpr std::size_t kBlock = std::size_t{8} << 20;

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// Sizes as a ResNet-50 with momentum has them: few large ones, many small ones.
std::vector<TensorSpec> tensors_of(std::int64_t bytes) {
  std::vector<TensorSpec> tensors;
  for (std::int64_t i = 0, total = 0; total < bytes; ++i) {
    constexpr std::int64_t kElements[] = {2'359'296, 64, 1'048'576, 256, 524'288, 1, 65'536, 2048};
    const std::int64_t count = kElements[i % 8];
    tensors.push_back({"model/layer" + std::to_string(i), DType::float32, {count}});
    total += 4 * count;
  }
  return tensors;
}

void write_checkpoint(const std::string& path, std::int64_t bytes) {
  const auto plan = make_file_plan(tensors_of(bytes));
  Snapshot snapshot{plan->layout, make_image(*plan), {}, 1};
  for (std::size_t i = 0; i < plan->layout->tensors().size(); ++i) {
    const auto slot = plan->layout->slot(i, snapshot.arena->bytes());
    for (std::size_t at = 0; at < slot.size(); ++at)
      slot[at] = static_cast<std::byte>((at + i) * 2654435761 >> 13);
  }
  const auto file = FileSystem::real().open_file(path, OpenMode::create_direct);
  file->reserve(plan->layout->length());
  write_image(*file, snapshot, *plan);
  file->sync();
  file->close();
}

void read_raw(const std::string& path, std::size_t bytes, int threads, std::byte* fresh,
              std::vector<Arena*> used) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECT);
  if (fd < 0) throw std::runtime_error(path + ": no O_DIRECT here");
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&](std::size_t thread) {
    for (std::size_t at = kBlock * next++; at < bytes; at = kBlock * next++) {
      std::byte* const to = fresh ? fresh + at : used[thread]->bytes().data();
      if (::pread(fd, to, std::min(kBlock, (bytes - at + 4095) / 4096 * 4096), static_cast<off_t>(at)) < 0)
        failed = true;
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work, static_cast<std::size_t>(i));
  work(0);
  for (std::thread& other : others) other.join();
  ::close(fd);
  if (failed) throw std::runtime_error(path + ": a read failed");
}

struct Way {
  std::string name;
  std::function<void()> run;
  std::vector<double> seconds;
  std::vector<double> processor;
};

int run(const std::filesystem::path& folder, std::int64_t megabytes, int repetitions) {
  const std::string path = (folder / ("restore-" + std::to_string(::getpid()) + ".h5")).string();
  struct Remove {
    std::string path;
    ~Remove() { std::filesystem::remove(path); }
  } const remove{path};
  write_checkpoint(path, megabytes * 1'000'000);
  const std::size_t bytes = std::filesystem::file_size(path);
  Arena a(kBlock), b(kBlock), c(kBlock), d(kBlock);
  const std::vector<Arena*> used{&a, &b, &c, &d};
  for (Arena* arena : used) std::memset(arena->bytes().data(), 1, kBlock);

  std::vector<Way> ways;
  for (const int threads : {1, 2, 4}) {
    const std::string by = std::to_string(threads) + (threads == 1 ? " thread" : " threads");
    ways.push_back(
        {"raw, used memory, " + by, [&, threads] { read_raw(path, bytes, threads, nullptr, used); }, {}, {}});
    ways.push_back({"raw, fresh memory, " + by,
                    [&, threads] {
                      Arena image(bytes);
                      read_raw(path, bytes, threads, image.bytes().data(), {});
                    },
                    {},
                    {}});
    ways.push_back(
        {"verified restore, " + by,
         [&, threads] {
           const auto file = FileSystem::real().open_file(path, OpenMode::read);
           const auto index = std::get<CheckpointIndex>(read_index(*file, ReadMode::once));
           if (!std::holds_alternative<std::shared_ptr<Snapshot>>(read_snapshot(*file, index, threads)))
             throw std::runtime_error("rejected");
         },
         {},
         {}});
  }
  for (int i = 0; i <= repetitions; ++i) {
    for (Way& way : ways) {
      const double processor = processor_seconds();
      const auto begin = std::chrono::steady_clock::now();
      way.run();
      if (i == 0) continue;  // warms up
      way.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      way.processor.push_back(processor_seconds() - processor);
    }
  }
  double used_best = 1e9, fresh_best = 1e9;
  for (const Way& way : ways) {
    if (way.name.starts_with("raw, used")) used_best = std::min(used_best, median(way.seconds));
    if (way.name.starts_with("raw, fresh")) fresh_best = std::min(fresh_best, median(way.seconds));
  }
  std::printf("%zu bytes, medians of %d\n", bytes, repetitions);
  for (const Way& way : ways) {
    const double seconds = median(way.seconds);
    std::printf(
        "%-32s %8.3f s  %5.2f GB/s  %4.0f core-ms/GB  %.2f of raw into used, %.2f into fresh memory\n",
        way.name.c_str(), seconds, static_cast<double>(bytes) / seconds / 1e9,
        median(way.processor) * 1e12 / static_cast<double>(bytes), used_best / seconds, fresh_best / seconds);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_restore FOLDER [MB] [REPETITIONS]\n");
    return 64;
  }
  try {
    return run(argv[1], argc > 2 ? std::atoll(argv[2]) : 188, argc > 3 ? std::atoi(argv[3]) : 9);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_restore: %s\n", error.what());
    return 1;
  }
}
