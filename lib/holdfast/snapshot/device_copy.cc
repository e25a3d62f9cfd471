#include "holdfast/snapshot/device_copy.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/mutex.h"
#include "holdfast/base/round_up.h"
#include "holdfast/snapshot/piece_digests.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Alignment at which vector loads on the device are fast.
constexpr std::uint64_t kSpareUnit = 512;

// Polls, because a thread that spins in the driver takes a core and the driver's lock from training.
void wait_for(CopyDevice& device, std::size_t mark) {
  // A short pause first: a small state arrives within microseconds, and the limit bounds the waste for a
  // large one.
  auto pause = std::chrono::microseconds(50);
  while (!device.reached(mark)) {
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
}

class JoinedCopies final : public LateCopy {
 public:
  JoinedCopies(std::unique_ptr<LateCopy> host, std::unique_ptr<LateCopy> devices, bool host_is_copied)
      : host_(std::move(host)), devices_(std::move(devices)), host_is_copied_(host_is_copied) {}
  void run() noexcept override { host_->run(); }
  void run_digesting(PieceDigests& digests) noexcept override { host_->run_digesting(digests); }
  std::vector<std::string> changed() const override {
    std::vector<std::string> names = devices_->changed();
    // If the host's part was copied at once, later changes do not matter.
    if (!host_is_copied_) {
      for (std::string& name : host_->changed()) names.push_back(std::move(name));
    }
    return names;
  }
  std::vector<std::string> changed_samples() const override {
    return host_is_copied_ ? std::vector<std::string>() : host_->changed_samples();
  }
  bool on_its_way() const noexcept override { return devices_->on_its_way(); }
  bool independent() const noexcept override { return host_is_copied_ && devices_->independent(); }
  void hold_update() noexcept override { devices_->hold_update(); }
  void arrive() override { devices_->arrive(); }
  void arrive_digesting(PieceDigests& digests) override { devices_->arrive_digesting(digests); }

 private:
  std::unique_ptr<LateCopy> host_;
  std::unique_ptr<LateCopy> devices_;
  bool host_is_copied_;
};

}  // namespace

std::unique_ptr<LateCopy> join_copies(std::unique_ptr<LateCopy> host, std::unique_ptr<LateCopy> devices,
                                      bool copy_host_now) {
  if (copy_host_now) host->run();
  return std::make_unique<JoinedCopies>(std::move(host), std::move(devices), copy_host_now);
}

std::unique_ptr<DeviceCopy> DeviceCopy::begin(std::vector<DeviceShare> shares, bool locked,
                                              NextUpdate update) {
  std::unique_ptr<DeviceCopy> copy(new DeviceCopy());
  copy->locked_ = locked;
  // No reallocation later: start() keeps references into this list if the destructor has to drain.
  copy->lanes_.reserve(shares.size());
  for (DeviceShare& share : shares) {
    copy->lanes_.emplace_back().share = std::move(share);
    copy->start(copy->lanes_.back(), update);  // if it throws, the destructor drains the started lanes
  }
  copy->arrived_ = std::all_of(copy->lanes_.begin(), copy->lanes_.end(),
                               [](const Lane& lane) { return lane.way == Way::at_once; });
  return copy;
}

DeviceCopy::~DeviceCopy() {
  // The device may still write into the image, so its memory must outlive the copies.
  if (arrived_) return;
  for (const Lane& lane : lanes_) lane.share.device->drain();
}

// Places tensors that are adjacent in the image next to each other in spare memory, so that one transfer
// fetches them all. Hundreds of small transfers would take longer than their bytes.
void DeviceCopy::lay_out(Lane& lane, bool early_only) {
  lane.runs.clear();
  lane.places.clear();
  lane.spare = 0;
  const auto& tensors = lane.share.tensors;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    // A tensor that another rank stages has no place in this image.
    if (!tensors[i].to.empty() && (tensors[i].early || !early_only)) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return tensors[a].to.data() < tensors[b].to.data(); });
  for (const std::size_t i : order) {
    const DeviceTensor& tensor = tensors[i];
    // CopyDevice wants each tensor's spare place aligned to its element.
    const bool joins = !lane.runs.empty() &&
                       lane.runs.back().to.data() + lane.runs.back().to.size() == tensor.to.data() &&
                       lane.runs.back().to.size() % tensor.element == 0;
    if (!joins) {
      if (!lane.runs.empty()) lane.spare = lane.runs.back().offset + lane.runs.back().to.size();
      lane.runs.push_back({round_up(lane.spare, kSpareUnit), {tensor.to.data(), 0}});
    }
    Run& run = lane.runs.back();
    lane.places.push_back({i, run.offset + run.to.size()});
    run.to = {run.to.data(), run.to.size() + tensor.to.size()};
  }
  if (!lane.runs.empty()) lane.spare = lane.runs.back().offset + lane.runs.back().to.size();
}

void DeviceCopy::start(Lane& lane, NextUpdate update) {
  CopyDevice& device = *lane.share.device;
  lay_out(lane, false);
  // Spare memory for everything is the best way: training overwrites the live tensors freely afterwards.
  if (!lane.share.at_once && device.reserve(lane.spare, false)) {
    lane.way = Way::aside;
    device.set_aside(lane.places);
    // In the training's queue, so the copy is of this step boundary, whatever training does next.
    device.follow_training();
    return;  // arrive() fetches: training need not wait for hundreds of calls
  }
  lay_out(lane, true);
  // Without page-locked memory a fetch would block this thread, and a gate would then stop training for all
  // of it.
  if (!lane.share.at_once && update == NextUpdate::announced && locked_ && device.reserve(lane.spare, true)) {
    lane.way = Way::gated;
    device.set_aside(lane.places);
    device.follow_training();
    for (const Run& run : lane.runs) {
      in_pieces(run.to, [&](std::uint64_t at, auto to) { device.fetch_spare(run.offset + at, to); });
    }
    for (std::size_t i = 0; i < lane.share.tensors.size(); ++i) {
      const DeviceTensor& tensor = lane.share.tensors[i];
      if (tensor.early) continue;
      in_pieces(tensor.to, [&](std::uint64_t at, auto to) { device.fetch_live(i, at, to); });
    }
    device.mark(0);
    return;
  }
  lane.way = Way::at_once;
  device.copy_now(lane.share.tensors);
}

std::uint64_t DeviceCopy::in_one_piece(const std::byte* at, std::uint64_t bytes) {
  return std::min<std::uint64_t>(bytes, kPiece - reinterpret_cast<std::uintptr_t>(at) % kPiece);
}

template <class Fetch>
void DeviceCopy::in_pieces(std::span<std::byte> to, const Fetch& fetch) {
  std::uint64_t done = 0;
  while (done < to.size()) {
    const std::uint64_t bytes = in_one_piece(to.data() + done, to.size() - done);
    fetch(done, to.subspan(done, bytes));
    done += bytes;
  }
}

bool DeviceCopy::independent() const noexcept {
  return std::none_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.way == Way::gated; });
}

void DeviceCopy::hold_update() noexcept {
  if (arrived_) return;
  for (Lane& lane : lanes_) {
    if (lane.way != Way::gated) continue;
    try {
      lane.share.device->hold_training(0);
    } catch (const std::exception& error) {
      // The device cannot wait for the mark, so this thread waits for the copies.
      log_debug("the next update could not be made to wait: {}", what_of(error));
      lane.share.device->drain();
    }
  }
}

DeviceCopy::Fetches DeviceCopy::fetches_of(const Lane& lane) {
  Fetches fetches;
  for (const Run& run : lane.runs) {
    in_pieces(run.to, [&](std::uint64_t at, auto to) { fetches.push_back({run.offset + at, to}); });
  }
  return fetches;
}

// Marks the middle as well as the end, so that arrive() digests the first half while the second is on its
// way.
void DeviceCopy::fetch(Lane& lane, const Fetches& fetches) {
  CopyDevice& device = *lane.share.device;
  std::uint64_t all = 0;
  for (const Run& one : fetches) all += one.to.size();
  std::uint64_t done = 0;
  lane.first_half = 0;
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    device.fetch_spare(fetches[i].offset, fetches[i].to);
    done += fetches[i].to.size();
    if (lane.first_half != 0 || done < all / 2) continue;
    lane.first_half = i + 1;
    device.mark(1);
  }
  device.mark(0);
}

void DeviceCopy::arrive(PieceDigests* digests) {
  if (arrived_) return;
  std::vector<std::pair<Lane*, Fetches>> directly;
  for (Lane& lane : lanes_) {
    if (lane.way != Way::aside) continue;
    CopyDevice& device = *lane.share.device;
    if (!locked_) {
      if (const auto bounce = device.bounce(); !bounce.empty()) {
        through_bounce(lane, bounce, digests);
        continue;
      }
    }
    directly.emplace_back(&lane, fetches_of(lane));
    fetch(lane, directly.back().second);
  }
  // Waits only now, so that all devices copy at the same time.
  if (digests != nullptr) {
    for (const bool second : {false, true}) {
      for (const auto& [lane, fetches] : directly) {
        if (fetches.empty()) continue;
        wait_for(*lane->share.device, second ? 0 : 1);
        PieceDigester stream(*digests);
        const std::size_t begin = second ? lane->first_half : 0;
        const std::size_t end = second ? fetches.size() : lane->first_half;
        for (std::size_t i = begin; i < end; ++i) stream.passed(fetches[i].to);
      }
    }
  }
  for (Lane& lane : lanes_) {
    if (lane.way != Way::at_once) wait_for(*lane.share.device, 0);
  }
  // From here on no device touches the image; the destructor relies on it.
  arrived_ = true;
}

// Uses two halves in turn: the device fills one while this thread copies the other into the image.
void DeviceCopy::through_bounce(Lane& lane, std::span<std::byte> bounce, PieceDigests* digests) {
  static_assert(CopyDevice::kMarks == 2);
  std::optional<PieceDigester> stream;
  if (digests != nullptr) stream.emplace(*digests);
  // All devices share the bounce memory, and two snapshots may arrive on two threads at once.
  static Mutex one_at_a_time;
  const MutexLock lock(one_at_a_time);
  CopyDevice& device = *lane.share.device;
  const std::size_t half = bounce.size() / 2;
  std::array<std::span<std::byte>, 2> waiting;  // destination in the image of each half's content
  const auto empty = [&](std::size_t which) {
    if (waiting[which].empty()) return;
    wait_for(device, which);
    const auto arrived = std::as_const(bounce).subspan(which * half, waiting[which].size());
    if (stream) {
      stream->copy(arrived, waiting[which]);
    } else {
      std::memcpy(waiting[which].data(), arrived.data(), arrived.size());
    }
    waiting[which] = {};
  };
  std::size_t which = 0;
  for (const Run& run : lane.runs) {
    for (std::uint64_t done = 0; done < run.to.size();) {
      const std::size_t bytes = std::min<std::uint64_t>(half, run.to.size() - done);
      // The half may still hold bytes of two fetches ago.
      empty(which);
      device.fetch_spare(run.offset + done, bounce.subspan(which * half, bytes));
      device.mark(which);
      waiting[which] = run.to.subspan(done, bytes);
      which = 1 - which;
      done += bytes;
    }
  }
  empty(which);
  empty(1 - which);
  // Later waiters look at mark 0 alone.
  device.mark(0);
}

std::vector<std::string> DeviceCopy::changed() const {
  std::vector<std::string> names;
  for (const Lane& lane : lanes_) {
    if (lane.way != Way::gated) continue;
    for (std::size_t i = 0; i < lane.share.tensors.size(); ++i) {
      const DeviceTensor& tensor = lane.share.tensors[i];
      // Early tensors were set aside, so a later change of them does no harm.
      if (!tensor.early && !lane.share.device->equals(i, tensor.to)) names.push_back(tensor.name);
    }
  }
  return names;
}

}}  // namespace holdfast::v0_2
