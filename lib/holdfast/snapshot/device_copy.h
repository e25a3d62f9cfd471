// Copies tensors from devices into an image while training continues. This file decides what is copied in
// which order; CopyDevice is the interface to a device (CUDA in state/internal/cuda_device.h, threads in
// tests). Per device, the first possible way is used:
//
//   aside    copy everything to spare device memory in the training's queue, then drain it beside the steps
//   gated    copy aside what may change early, fetch the rest from live memory; the next update waits on the
//            device. Only in a loop that announces its updates, and only into page-locked memory
//   at once  begin() blocks until everything is in the image
//
// Requires: the caller of begin() is the thread that feeds the training's queue. The image outlives the copy.
// Errors: Error with the device, from begin() and arrive(). The destructor waits for copies on their way.
// Threads: begin(), hold_update(), changed() on the training thread; arrive() on any, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast { inline namespace v0_2 {

// A tensor on a device, and its place in the image.
struct DeviceTensor {
  std::string name;
  std::uint64_t element = 1;  // bytes of one element; the spare place is aligned to it
  bool early = false;         // may change before the next update, so it is never fetched from live memory
  std::span<std::byte> to;    // in logical order
};

// The spare place of tensor `index`, in bytes from the start of the reserved memory.
struct SparePlace {
  std::size_t index = 0;
  std::uint64_t offset = 0;
};

// One device during one save. `index` counts the tensors of its DeviceShare.
// Threads: as the calls above; never two at once.
class HOLDFAST_EXPORT CopyDevice {
 public:
  static constexpr std::size_t kMarks = 2;

  // Requires that no copy is on its way.
  virtual ~CopyDevice() = default;
  // Reserves spare memory. False: there is none, and nothing happened. `live`: fetch_live() will be called,
  // so reserve what that needs too. May be called again after false.
  virtual bool reserve(std::uint64_t bytes, bool live) = 0;
  // Copies these tensors in logical order, in the training's queue.
  virtual void set_aside(std::span<const SparePlace> places) = 0;
  // The copying queue waits, on the device, for all work given to the training's queue so far.
  virtual void follow_training() = 0;
  // In the copying queue: copies from spare or live memory. `from`: bytes into the tensor's logical order,
  // ascending for one tensor. Returns at once if `to` is page-locked.
  virtual void fetch_spare(std::uint64_t from, std::span<std::byte> to) = 0;
  virtual void fetch_live(std::size_t index, std::uint64_t from, std::span<std::byte> to) = 0;
  // Puts a mark into the copying queue. reached(): has the queue passed it? Throws Error if it never will.
  virtual void mark(std::size_t which) = 0;
  virtual bool reached(std::size_t which) = 0;
  // The training's queue waits, on the device, for that mark.
  virtual void hold_training(std::size_t which) = 0;
  // Waits for the training's queue, copies everything, and returns when it is in the image.
  virtual void copy_now(std::span<const DeviceTensor> tensors) = 0;
  // True if live memory of the tensor equals these bytes. Slow.
  virtual bool equals(std::size_t index, std::span<const std::byte> bytes) = 0;
  // Page-locked memory for copies into an image that is not page-locked; the same at each call. Empty: none.
  virtual std::span<std::byte> bounce() = 0;
  // Returns when the copying queue is empty, even if its work failed.
  virtual void drain() noexcept = 0;
};

struct DeviceShare {
  std::unique_ptr<CopyDevice> device;
  std::vector<DeviceTensor> tensors;
  bool at_once = false;  // allows only the way "at once"
};

// Whether before_update() (hold_update) will precede any change of tensors that are not `early`.
enum class NextUpdate { announced, unannounced };

class HOLDFAST_EXPORT DeviceCopy final : public LateCopy {
 public:
  // Pages are locked in pieces that end at the addresses which are multiples of this. CUDA refuses a copy
  // that crosses from one piece into the next (cudaErrorInvalidValue), so no copy crosses such an address. It
  // also lets other copies run in between.
  static constexpr std::uint64_t kPiece = 32u << 20;
  // How many of `bytes` at this address belong to its piece.
  static std::uint64_t in_one_piece(const std::byte* at, std::uint64_t bytes);

  // `locked`: all places of the image into which it copies are page-locked.
  static std::unique_ptr<DeviceCopy> begin(std::vector<DeviceShare> shares, bool locked, NextUpdate update);
  ~DeviceCopy() override;

  void run() noexcept override {}                     // no tensor is in host memory
  std::vector<std::string> changed() const override;  // checks tensors that were fetched from live memory
  bool on_its_way() const noexcept override { return !arrived_; }
  bool independent() const noexcept override;
  void hold_update() noexcept override;
  void arrive() override { arrive(nullptr); }
  // What was set aside is digested in its order, half by half into page-locked memory. What is fetched from
  // live memory is not.
  void arrive_digesting(PieceDigests& digests) override { arrive(&digests); }

 private:
  enum class Way { aside, gated, at_once };
  // Bytes that are contiguous both in spare memory and in the image.
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
    std::size_t first_half = 0;  // of fetches_of(), until the second mark
  };

  DeviceCopy() = default;
  static void lay_out(Lane& lane, bool early_only);
  void start(Lane& lane, NextUpdate update);
  template <class Fetch>
  static void in_pieces(std::span<std::byte> to, const Fetch& fetch);
  // Copies with their source in spare memory.
  using Fetches = std::vector<Run>;
  void arrive(PieceDigests* digests);
  static Fetches fetches_of(const Lane& lane);
  static void fetch(Lane& lane, const Fetches& fetches);
  static void through_bounce(Lane& lane, std::span<std::byte> bounce, PieceDigests* digests);

  std::vector<Lane> lanes_;
  bool locked_ = false;
  bool arrived_ = false;
};

// Joins the late copies of host memory and of devices. `copy_host_now`: copies host memory here, so that the
// whole is independent if the devices' part is.
HOLDFAST_EXPORT std::unique_ptr<LateCopy> join_copies(std::unique_ptr<LateCopy> host,
                                                      std::unique_ptr<LateCopy> devices, bool copy_host_now);

}}  // namespace holdfast::v0_2
