// Copies tensors from devices into an image while the training goes on. What is decided and in which order
// things happen is here; the devices themselves are behind CopyDevice (state/internal/cuda_device.h has CUDA,
// tests play one with threads).
//
// A device has two queues: the one that trains, and one that copies to host memory beside it. Each save
// takes, device by device, the first way that is open:
//
//   aside   all of it is copied to spare memory of the device, in the training's queue: a few microseconds a
//           megabyte. From there it drains to the host behind the next steps, whatever these do.
//   gated   no spare memory: what changes before the next update is copied aside, the rest is fetched from
//           live memory, and the next update waits for that on the device (hold_update). Only in a loop that
//           announces its updates, and only into page-locked memory.
//   at once begin() returns when it is all in the image. This thread waits for the device.
//
// Requires: whoever calls begin() is the thread that gives the training's queue its work, and what the state
// holds at that moment is what that queue has been given. The image outlives the copy.
// Errors: Error naming the device, from begin() and arrive(). The destructor waits for what is on its way.
// Threads: begin(), hold_update(), changed() on the training thread; arrive() on any, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast::inline v1 {

// A tensor on a device, and its place in the image.
struct DeviceTensor {
  std::string name;
  std::uint64_t element = 1;  // bytes of one element: its spare place is a multiple of it
  bool early = false;         // may change before the next update: never fetched from live memory
  std::span<std::byte> to;    // in logical order
};

// The spare place of tensor `index`, in bytes from the start of what reserve() gave.
struct SparePlace {
  std::size_t index = 0;
  std::uint64_t offset = 0;
};

// One device, for one save. `index` counts the tensors it was made with.
// Threads: as the calls are made above; never two at once.
class CopyDevice {
 public:
  static constexpr std::size_t kMarks = 2;

  // Requires that nothing is on its way.
  virtual ~CopyDevice() = default;
  // Spare memory; false: there is none, and nothing happened. `live`: fetch_live() will be called, and what
  // that needs beside is wanted, too. May be asked again after false.
  virtual bool reserve(std::uint64_t bytes, bool live) = 0;
  // In the training's queue: copies of these, in logical order.
  virtual void set_aside(std::span<const SparePlace> places) = 0;
  // The copying queue waits, on the device, for what the training's has been given so far.
  virtual void follow_training() = 0;
  // In the copying queue, from spare memory and from live memory (`from` bytes into the tensor's logical
  // order; ascending for one tensor). Into page-locked memory these return at once.
  virtual void fetch_spare(std::uint64_t from, std::span<std::byte> to) = 0;
  virtual void fetch_live(std::size_t index, std::uint64_t from, std::span<std::byte> to) = 0;
  // A mark in the copying queue behind what it was given; has the queue come to it? Error: it never will.
  virtual void mark(std::size_t which) = 0;
  virtual bool reached(std::size_t which) = 0;
  // The training's queue waits, on the device, for that mark.
  virtual void hold_training(std::size_t which) = 0;
  // Everything, now: waits for the training's queue and returns when the image has it.
  virtual void copy_now(std::span<const DeviceTensor> tensors) = 0;
  // Live memory of the tensor and these bytes are the same. Slow.
  virtual bool equals(std::size_t index, std::span<const std::byte> bytes) = 0;
  // Page-locked memory to copy through, for an image that is not; the same each time. Empty: none to be had.
  virtual std::span<std::byte> bounce() = 0;
  // Returns when the copying queue is empty, whatever became of its work.
  virtual void drain() noexcept = 0;
};

struct DeviceShare {
  std::unique_ptr<CopyDevice> device;
  std::vector<DeviceTensor> tensors;
  bool at_once = false;  // neither of the other ways
};

// Whether before_update() will come (hold_update) before anything changes that is not `early`.
enum class NextUpdate { announced, unannounced };

class DeviceCopy final : public LateCopy {
 public:
  // A fetch never crosses a multiple of this many bytes from the image's start: page-locking may be done in
  // pieces of it, and other copies get their turn between.
  static constexpr std::uint64_t kPiece = 32u << 20;

  // `locked`: the image is page-locked.
  static std::unique_ptr<DeviceCopy> begin(std::vector<DeviceShare> shares, std::span<std::byte> image,
                                           bool locked, NextUpdate update);
  ~DeviceCopy() override;

  void run() noexcept override {}                     // nothing of it is in host memory
  std::vector<std::string> changed() const override;  // of those fetched from live memory
  bool on_its_way() const noexcept override { return !arrived_; }
  bool independent() const noexcept override;
  void hold_update() noexcept override;
  void arrive() override;

 private:
  enum class Way { aside, gated, at_once };
  // Bytes that lie one after another in spare memory and in the image.
  struct Run {
    std::uint64_t offset = 0;
    std::span<std::byte> to;
  };
  struct Lane {
    DeviceShare share;
    Way way = Way::at_once;
    std::vector<Run> runs;
    std::vector<SparePlace> places;
    std::uint64_t spare = 0;
  };

  DeviceCopy() = default;
  static void lay_out(Lane& lane, bool early_only);
  void start(Lane& lane, NextUpdate update);
  template <class Fetch>
  void in_pieces(std::span<std::byte> to, const Fetch& fetch) const;
  void through_bounce(Lane& lane, std::span<std::byte> bounce) const;

  std::vector<Lane> lanes_;
  std::span<std::byte> image_;
  bool locked_ = false;
  bool arrived_ = false;
};

// One late copy of two: of what lies in host memory, and of what lies on devices. `copy_host_now`: it is
// copied here, and the whole is independent where the devices' part is.
std::unique_ptr<LateCopy> join_copies(std::unique_ptr<LateCopy> host, std::unique_ptr<LateCopy> devices,
                                      bool copy_host_now);

}  // namespace holdfast::inline v1
