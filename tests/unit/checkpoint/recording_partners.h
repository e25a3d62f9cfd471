// Other ranks that write down what a process asks of them, and answer as a test wants.
//
// Threads: any; a test sets the answers before it lets another thread ask.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/checkpoint/internal/save_partners.h"

namespace holdfast::test {

class RecordingPartners final : public internal::SavePartners {
 public:
  // In order, since the last look.
  std::vector<std::string> calls() {
    const std::lock_guard lock(mutex_);
    return std::exchange(calls_, {});
  }

  bool leads() const override { return speaks_for_all; }
  void heard(const Notice& /*notice*/) noexcept override { note("heard"); }
  std::int64_t plan() const override {
    note("plan");
    return shared_plan;
  }
  void add_values(Measurements& /*measurements*/) override { note("add_values"); }
  void join(WriteRequest& /*request*/, internal::Staged& /*staged*/) override { note("join"); }
  void joined() noexcept override { note("joined"); }
  void lift_limit() noexcept override { note("lift_limit"); }
  void restore_limit() noexcept override { note("restore_limit"); }
  std::string lacking(const ImageLayout& /*layout*/) const override {
    note("lacking");
    return lacks;
  }
  bool complete(internal::BoundaryShelf& /*shelf*/) noexcept override {
    note("complete");
    return completes;
  }
  bool usual() const noexcept override {
    note("usual");
    return true;
  }
  void committed_from_shelf(const internal::BegunSave& /*save*/) override { note("committed_from_shelf"); }
  int torn_rank() const override {
    note("torn_rank");
    return torn;
  }
  bool hopeless() const override {
    note("hopeless");
    return no_time;
  }
  void last_save_begun() noexcept override { note("last_save_begun"); }
  void last_save_again() noexcept override { note("last_save_again"); }
  std::shared_ptr<Snapshot> part_of(std::shared_ptr<Snapshot> whole) const override {
    note("part_of");
    return whole;
  }

  bool speaks_for_all = true;
  std::int64_t shared_plan = 0;
  std::string lacks;
  bool completes = true;
  int torn = -1;
  bool no_time = false;

 private:
  void note(const char* call) const {
    const std::lock_guard lock(mutex_);
    calls_.emplace_back(call);
  }

  mutable std::mutex mutex_;
  mutable std::vector<std::string> calls_;
};

}  // namespace holdfast::test
