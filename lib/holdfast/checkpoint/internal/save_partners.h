// What the other ranks of a run have to do with a save of this process. A process that is alone has none:
// these are its answers. (RankPartners has those of several ranks.)
//
// Errors: what is not noexcept throws std::bad_alloc. Threads: the training thread, except what says any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/measurements.h"
#include "holdfast/interruption/notice.h"

namespace holdfast { inline namespace v1 { namespace internal {

class BoundaryShelf;

class SavePartners {
 public:
  SavePartners() = default;
  virtual ~SavePartners() = default;
  SavePartners(const SavePartners&) = delete;
  SavePartners& operator=(const SavePartners&) = delete;

  // This process speaks for all.
  virtual bool leads() const { return true; }

  // This process has heard a notice. Any thread.
  virtual void heard(const Notice& /*notice*/) noexcept {}
  // Another rank has heard one that waits for no vote. Any thread; costs a look at a flag.
  virtual bool call() const noexcept { return false; }
  // Such a call may come. Any thread.
  virtual bool may_call() const noexcept { return false; }

  // Equal on all ranks that write the save that begins now; 0: this process writes it alone.
  virtual std::int64_t plan() const { return 0; }
  // Values that belong to the state that is saved now.
  virtual void add_values(Measurements& /*measurements*/) {}
  // The writer will need others for this.
  virtual void join(WriteRequest& /*request*/, Staged& /*staged*/) {}
  virtual void joined() noexcept {}
  // Shares of others are written without a speed limit, or with it again.
  virtual void hurry() noexcept {}
  virtual void calm() noexcept {}

  // The name of the text by which others tell what an image of this boundary lacks; empty: nothing.
  virtual std::string lacking(const ImageLayout& /*layout*/) const { return {}; }
  // The image of a boundary on the shelf lacks nothing of others. Any thread.
  virtual bool complete(BoundaryShelf& /*shelf*/) noexcept { return true; }
  // What its commit costs is what others will cost. Any thread.
  virtual bool usual() const noexcept { return true; }
  // It was committed. Others may know of a notice that this process has not looked at.
  virtual void committed_from_shelf(const BegunSave& /*save*/) {}

  // At the end: a rank that is inside an update; −1: none.
  virtual int torn_rank() const { return -1; }
  // A stop leaves no time for a save.
  virtual bool hopeless() const { return false; }
  // The last save is over, or there is none: whoever waits for a word about it gets it.
  virtual void last_save_begun() noexcept {}
  // It failed, and is tried once more.
  virtual void last_save_again() noexcept {}
  // An image that this process takes is the whole state.
  virtual bool holds_all() const { return true; }
  // The part of a whole state that is this process's.
  virtual std::shared_ptr<Snapshot> part_of(std::shared_ptr<Snapshot> whole) const { return whole; }
};

}}}  // namespace holdfast::v1::internal
