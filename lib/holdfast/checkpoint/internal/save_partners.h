// The other ranks' part in a save of this process. The defaults here are the answers of a process that is
// alone; RankPartners has those of several ranks.
//
// Errors: methods without noexcept throw std::bad_alloc. Threads: the training thread, unless a method says
// any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/measurements.h"
#include "holdfast/interruption/notice.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class BoundaryShelf;

class SavePartners {
 public:
  SavePartners() = default;
  virtual ~SavePartners() = default;
  SavePartners(const SavePartners&) = delete;
  SavePartners& operator=(const SavePartners&) = delete;

  // True on the one process that logs and writes for all.
  virtual bool leads() const { return true; }

  // This process has heard a notice. Any thread.
  virtual void heard(const Notice& /*notice*/) noexcept {}
  // Another rank has heard a notice that cannot wait for a vote. Any thread; reads a flag.
  virtual bool call() const noexcept { return false; }
  // Such a call is possible. Any thread.
  virtual bool may_call() const noexcept { return false; }

  // Number of the plan by which all ranks write the save that begins now; 0: this process writes alone.
  virtual std::int64_t plan() const { return 0; }
  // Adds values that belong to the state saved now.
  virtual void add_values(Measurements& /*measurements*/) {}
  // Adds to `request` what the writer needs from others.
  virtual void join(WriteRequest& /*request*/, Staged& /*staged*/) {}
  virtual void joined() noexcept {}
  // Shares of others are written without a speed limit from lift_limit() until restore_limit().
  virtual void lift_limit() noexcept {}
  virtual void restore_limit() noexcept {}

  // Name of the text with the part of this boundary that the image lacks; empty: it lacks nothing.
  virtual std::string lacking(const ImageLayout& /*layout*/) const { return {}; }
  // Completes the image on the shelf with others' parts. True: it lacks nothing. Any thread.
  virtual bool complete(BoundaryShelf& /*shelf*/) noexcept { return true; }
  // The cost of its commit is typical for later ones. Any thread.
  virtual bool usual() const noexcept { return true; }
  // It was committed, perhaps for a notice of another rank that this process has not seen.
  virtual void committed_from_shelf(const BegunSave& /*save*/) {}

  // At the end: a rank that is inside an update; −1: none.
  virtual int torn_rank() const { return -1; }
  // A stop leaves no time for a save.
  virtual bool hopeless() const { return false; }
  // The last save has begun, or there is none: ranks that wait for news of it are told.
  virtual void last_save_begun() noexcept {}
  // The last save failed and is tried once more.
  virtual void last_save_again() noexcept {}
  // An image made by this process holds the whole state.
  virtual bool holds_all() const { return true; }
  // This process's part of a whole state.
  virtual std::shared_ptr<Snapshot> part_of(std::shared_ptr<Snapshot> whole) const { return whole; }
};

}}}  // namespace holdfast::v0_2::internal
