// A training state on simulated devices (fake_device.h). The state after a step is a function of the step's
// number, so a test can tell whether an image is that of one step boundary. As in a real loop, the host
// queues work and runs ahead of the devices.
//
// Threads: as in SnapshotSource.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "holdfast/snapshot/snapshot_source.h"
#include "support/fake_device.h"

namespace holdfast::test {

class DeviceSource final : public SnapshotSource {
 public:
  struct Options {
    std::size_t elements = 1000;  // of the weight, and of its momentum
    bool two_devices = false;     // the momentum is on the second device
    bool host_momentum = false;   // the momentum is in host memory
    bool lock_images = true;
  };
  // The page-locked images. Outlives the source.
  struct Locked {
    std::mutex mutex;
    std::set<const std::byte*> images;
    int ever = 0;
    std::size_t length = 0;  // bytes of each
    bool holds(const std::byte* address);
  };

  explicit DeviceSource(Options options);
  ~DeviceSource() override;  // requires that no copy is under way

  FakeDevice& device(std::size_t i = 0) { return *devices_[i]; }
  std::shared_ptr<Locked> locked() { return locked_; }
  void forward();  // queued: changes the statistics
  void update();   // queued: changes weight and momentum
  // Queued: changes a weight between two updates, and changes it back.
  void disturb(std::size_t i);
  void disturb_back(std::size_t i);
  // Queued: changes the weight for good, if the flag is set by then.
  void spoil_if(std::shared_ptr<std::atomic<bool>> wrong);
  // Waits for the devices. True if the whole state is that after `step` steps.
  bool holds_step(std::int64_t step);

  std::int64_t late_copies = 0;
  std::int64_t independent_copies = 0;
  std::function<void()> on_copy;  // called in copy(); may throw

  std::vector<TensorSpec> describe() override;
  Attributes attributes() override;
  SourceTraits traits() const override;
  std::unique_ptr<LateCopy> copy(const ImageLayout& layout, std::span<std::byte> image, Part part) override;
  Position advance(const StepReport&) override { return {.step = ++step_}; }
  Position position() const override { return {.step = step_}; }
  std::int64_t step() const { return step_; }
  void learn(const StepNews& news) override { early_.insert(news.early.begin(), news.early.end()); }
  void check(std::span<const TensorSpec>, const Attributes&, const Overrides&) override {}
  void load(const Snapshot& snapshot, const LoadOptions&) override;

 private:
  static constexpr std::size_t kHost = ~std::size_t{0};
  struct Piece {
    std::string name;
    std::vector<float>* values;
    std::size_t device;  // kHost: none
    bool late;
  };
  std::vector<Piece> pieces();
  std::unique_ptr<LateCopy> begin(const ImageLayout& layout, std::span<std::byte> image, NextUpdate update);
  void drain();

  Options options_;
  std::set<std::string> early_;
  std::int64_t step_ = 0;
  std::int64_t forwards_ = 0;  // as queued by the host
  std::int64_t updates_ = 0;
  std::vector<float> weight_, momentum_, statistics_, stream_;
  std::shared_ptr<Locked> locked_ = std::make_shared<Locked>();
  std::vector<std::unique_ptr<FakeDevice>> devices_;  // last member: their queues use the others
};

}  // namespace holdfast::test
