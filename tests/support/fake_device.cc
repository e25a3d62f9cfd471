#include "support/fake_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast::test {

void FakeEvent::set() {
  const std::lock_guard lock(mutex_);
  set_ = true;
  changed_.notify_all();
}

void FakeEvent::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return set_; });
}

bool FakeEvent::is_set() {
  const std::lock_guard lock(mutex_);
  return set_;
}

FakeQueue::FakeQueue()
    : thread_([this] {
        std::unique_lock lock(mutex_);
        while (true) {
          wake_.wait(lock, [this] { return stopping_ || !work_.empty(); });
          if (work_.empty()) return;
          const std::function<void()> next = std::move(work_.front());
          work_.pop_front();
          lock.unlock();
          next();
          lock.lock();
        }
      }) {}

FakeQueue::~FakeQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void FakeQueue::add(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  wake_.notify_one();
}

void FakeQueue::drain() {
  const auto event = std::make_shared<FakeEvent>();
  add([event] { event->set(); });
  event->wait();
}

FakeCopyDevice::FakeCopyDevice(FakeDevice& device, std::vector<std::span<const std::byte>> tensors,
                               std::function<bool(const std::byte*)> locked)
    : device_(device), tensors_(std::move(tensors)), locked_(std::move(locked)) {}

FakeCopyDevice::~FakeCopyDevice() {
  EXPECT_EQ(on_their_way_->load(), 0) << "memory is freed that is still being copied";
  if (spare_) device_.room += spare_->size();
}

bool FakeCopyDevice::reserve(std::uint64_t bytes, bool /*live*/) {
  EXPECT_EQ(spare_, nullptr);
  if (bytes > device_.room) {
    ++device_.refused;
    return false;
  }
  ++device_.reserved;
  device_.room -= bytes;
  spare_ = std::make_unique<std::vector<std::byte>>(bytes, std::byte{0xEE});
  return true;
}

void FakeCopyDevice::set_aside(std::span<const SparePlace> places) {
  for (const auto& [index, offset] : places) {
    const auto from = tensors_[index];
    EXPECT_LE(offset + from.size(), spare_->size());
    device_.training.add([from, to = spare_->data() + offset] { std::copy(from.begin(), from.end(), to); });
  }
}

void FakeCopyDevice::follow_training() {
  const auto event = std::make_shared<FakeEvent>();
  device_.training.add([event] { event->set(); });
  ++*on_their_way_;
  device_.copying.add([event, count = on_their_way_] {
    event->wait();
    --*count;
  });
}

void FakeCopyDevice::fetch(const std::byte* from, std::span<std::byte> to) {
  ++device_.fetched;
  device_.longest_fetch = std::max<std::uint64_t>(device_.longest_fetch, to.size());
  ++*on_their_way_;
  device_.copying.add([&device = device_, from, to, broken = broken_, count = on_their_way_] {
    if (device.before_fetch) device.before_fetch();
    if (device.fail_fetch >= 0 && device.fail_fetch-- == 0) *broken = true;
    if (!*broken) std::memcpy(to.data(), from, to.size());
    --*count;
  });
  if (!locked_(to.data())) device_.copying.drain();
}

void FakeCopyDevice::fetch_spare(std::uint64_t from, std::span<std::byte> to) {
  EXPECT_LE(from + to.size(), spare_->size());
  fetch(spare_->data() + from, to);
}

void FakeCopyDevice::fetch_live(std::size_t index, std::uint64_t from, std::span<std::byte> to) {
  ++device_.live;
  EXPECT_LE(from + to.size(), tensors_[index].size());
  fetch(tensors_[index].data() + from, to);
}

void FakeCopyDevice::mark(std::size_t which) {
  marks_[which] = std::make_shared<FakeEvent>();
  ++*on_their_way_;
  device_.copying.add([event = marks_[which], count = on_their_way_] {
    --*count;
    event->set();
  });
}

bool FakeCopyDevice::reached(std::size_t which) {
  const bool there = marks_[which]->is_set();
  if (*broken_) throw Error("fake device: a copy failed");
  return there;
}

void FakeCopyDevice::hold_training(std::size_t which) {
  if (device_.cannot_hold) throw Error("fake device: cannot wait");
  ++device_.holds;
  device_.training.add([event = marks_[which]] { event->wait(); });
}

void FakeCopyDevice::copy_now(std::span<const DeviceTensor> tensors) {
  ++device_.at_once;
  device_.training.drain();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::copy(tensors_[i].begin(), tensors_[i].end(), tensors[i].to.begin());
  }
}

bool FakeCopyDevice::equals(std::size_t index, std::span<const std::byte> bytes) {
  device_.training.drain();
  return std::equal(bytes.begin(), bytes.end(), tensors_[index].begin());
}

}  // namespace holdfast::test
