#include "ceiling.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "holdfast/base/error.h"
#include "statistics.h"
#include "volume.h"

namespace holdfast::bench {
namespace {

constexpr std::uint64_t kBlock = 8u << 20;
constexpr std::array kThreadCounts = {1, 2, 4};

using Transfer = std::function<ssize_t(std::span<std::byte> block, std::uint64_t offset)>;

// Every block once, by whichever thread is free. Returns the first errno.
int transfer_all(std::span<std::byte> memory, int threads, const Transfer& transfer) {
  std::atomic<std::uint64_t> next = 0;
  std::atomic<int> error = 0;
  const auto work = [&] {
    while (error == 0) {
      const std::uint64_t offset = next.fetch_add(kBlock);
      if (offset >= memory.size()) return;
      const auto block = memory.subspan(offset, std::min<std::uint64_t>(kBlock, memory.size() - offset));
      for (std::uint64_t done = 0; done < block.size();) {
        const ssize_t moved = transfer(block.subspan(done), offset + done);
        if (moved <= 0) {
          if (moved < 0 && errno == EINTR) continue;
          error = moved < 0 ? errno : EIO;
          return;
        }
        done += static_cast<std::uint64_t>(moved);
      }
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  return error;
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Ceiling::Ceiling(std::filesystem::path folder, std::uint64_t bytes)
    : folder_(std::move(folder)), memory_(std::make_unique<Arena>((bytes + 4095) / 4096 * 4096)) {
  // Not zeros, which a disk may store for nothing; every page is there before anything is measured.
  std::uint64_t word = 88172645463325252u;
  const auto all = buffer();
  for (std::size_t i = 0; i + sizeof word <= all.size(); i += sizeof word) {
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    __builtin_memcpy(all.data() + i, &word, sizeof word);
  }
}

Ceiling::~Ceiling() {
  std::error_code left;
  std::filesystem::remove(folder_ / "raw", left);
}

double Ceiling::write(int threads) {
  std::filesystem::remove(folder_ / "raw");
  settle(folder_);
  return write_as("raw", threads);
}

double Ceiling::write_in_row(int kept) {
  const auto name = [](int number) { return "row-" + std::to_string(number); };
  const double seconds = write_as(name(in_row_), write_threads_);
  std::filesystem::remove(folder_ / name(in_row_ - kept));
  ++in_row_;
  return seconds;
}

double Ceiling::write_as(const std::string& name, int threads) {
  const std::filesystem::path temporary = folder_ / (name + ".tmp");
  return seconds_of([&] {
    const int flags = O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC;
    int file = direct_ ? ::open(temporary.c_str(), flags | O_DIRECT, 0600) : -1;
    if (direct_ && file < 0 && errno == EINVAL) direct_ = false;
    if (!direct_) file = ::open(temporary.c_str(), flags, 0600);
    if (file < 0) throw IoError("open", temporary, errno);
    int error = ::fallocate(file, 0, 0, static_cast<off_t>(buffer().size())) == 0 ? 0 : errno;
    if (error == EOPNOTSUPP) error = 0;
    if (error == 0) {
      error = transfer_all(buffer(), threads, [&](std::span<std::byte> block, std::uint64_t offset) {
        return ::pwrite(file, block.data(), block.size(), static_cast<off_t>(offset));
      });
    }
    ::close(file);
    if (error != 0) throw IoError("write", temporary, error);
    make_durable(temporary, folder_ / name);
  });
}

double Ceiling::read(int threads, std::span<std::byte> to) {
  const std::filesystem::path path = folder_ / "raw";
  drop_cached(path);
  return seconds_of([&] {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (direct_ ? O_DIRECT : 0));
    if (file < 0) throw IoError("open", path, errno);
    const int error = transfer_all(to, threads, [&](std::span<std::byte> block, std::uint64_t offset) {
      return ::pread(file, block.data(), block.size(), static_cast<off_t>(offset));
    });
    ::close(file);
    if (error != 0) throw IoError("read", path, error);
  });
}

double Ceiling::read_into_new_memory() {
  std::unique_ptr<Arena> memory;
  const double mapping = seconds_of([&] { memory = std::make_unique<Arena>(buffer().size()); });
  return mapping + read(read_threads_, memory->bytes());
}

void Ceiling::choose_threads(int trials) {
  std::map<int, std::vector<double>> writes;
  std::map<int, std::vector<double>> reads;
  for (int i = 0; i < trials; ++i) {
    for (const int threads : kThreadCounts) {
      writes[threads].push_back(write(threads));
      reads[threads].push_back(read(threads, buffer()));
    }
  }
  const auto best = [](const auto& times) {
    return std::min_element(times.begin(), times.end(),
                            [](const auto& a, const auto& b) { return median(a.second) < median(b.second); })
        ->first;
  };
  write_threads_ = best(writes);
  read_threads_ = best(reads);
}

}  // namespace holdfast::bench
