// A device simulated by threads: two queues of work, events between them, spare memory that runs out, copies
// that fail. Its memory is plain memory that only its queues touch, so the thread sanitizer sees every
// unordered copy.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/snapshot/device_copy.h"

namespace holdfast::test {

class FakeEvent {
 public:
  void set();
  void wait();
  bool is_set();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

// Runs work in order on a separate thread.
class FakeQueue {
 public:
  FakeQueue();
  ~FakeQueue();  // waits until all work is done
  FakeQueue(const FakeQueue&) = delete;
  FakeQueue& operator=(const FakeQueue&) = delete;

  void add(std::function<void()> work);
  void drain();

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> work_;
  bool stopping_ = false;
  std::thread thread_;
};

struct FakeDevice {
  FakeQueue training;
  FakeQueue copying;
  std::atomic<std::uint64_t> room{1ull << 40};  // spare memory left
  std::atomic<int> fail_fetch{-1};              // number of fetches that succeed before one fails; -1: none
                                                // fails
  bool cannot_hold = false;                     // hold_training fails
  std::function<void()> before_fetch;           // on the copying thread; set it while no copy is under way
  std::vector<std::byte> bounce;

  // Counts of calls.
  std::atomic<int> reserved{0}, refused{0}, fetched{0}, live{0}, at_once{0}, holds{0};
  std::atomic<std::uint64_t> longest_fetch{0};
};

// Device memory as one save sees it.
class FakeCopyDevice : public CopyDevice {
 public:
  // `locked`: tells whether memory is page-locked. Fetches into other memory are synchronous.
  FakeCopyDevice(FakeDevice& device, std::vector<std::span<const std::byte>> tensors,
                 std::function<bool(const std::byte*)> locked);
  ~FakeCopyDevice() override;

  bool reserve(std::uint64_t bytes, bool live) override;
  void set_aside(std::span<const SparePlace> places) override;
  void follow_training() override;
  void fetch_spare(std::uint64_t from, std::span<std::byte> to) override;
  void fetch_live(std::size_t index, std::uint64_t from, std::span<std::byte> to) override;
  void mark(std::size_t which) override;
  bool reached(std::size_t which) override;
  void hold_training(std::size_t which) override;
  void copy_now(std::span<const DeviceTensor> tensors) override;
  bool equals(std::size_t index, std::span<const std::byte> bytes) override;
  std::span<std::byte> bounce() override { return device_.bounce; }
  void drain() noexcept override { device_.copying.drain(); }

 private:
  void fetch(const std::byte* from, std::span<std::byte> to);

  FakeDevice& device_;
  std::vector<std::span<const std::byte>> tensors_;
  std::function<bool(const std::byte*)> locked_;
  std::unique_ptr<std::vector<std::byte>> spare_;
  std::shared_ptr<FakeEvent> marks_[kMarks];
  std::shared_ptr<std::atomic<bool>> broken_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<std::atomic<int>> on_their_way_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace holdfast::test
