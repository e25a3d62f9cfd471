// The late copy of plain vectors that do not move, for test sources.
//
// Threads: as in LateCopy.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/snapshot/copy_list.h"
#include "holdfast/snapshot/samples.h"
#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast::test {

class VectorCopies final : public LateCopy {
 public:
  void add(std::string name, std::span<const std::byte> from, std::span<std::byte> to) {
    copies_.add(from, to);
    samples_.add(all_.size(), from);
    samples_.keep();
    all_.push_back({std::move(name), from, to});
  }
  void run() noexcept override {
    if (before) before();
    copies_.work();
    if (after) after();
  }
  void run_digesting(PieceDigests& digests) noexcept override {
    if (before) before();
    copies_.work(digests);
    if (after) after();
  }
  std::vector<std::string> changed() const override {
    std::vector<std::string> names;
    for (const auto& [name, from, to] : all_) {
      if (!std::equal(from.begin(), from.end(), to.begin())) names.push_back(name);
    }
    return names;
  }
  std::vector<std::string> changed_samples() const override {
    std::vector<std::string> names;
    for (const std::size_t owner : samples_.changed()) names.push_back(all_[owner].name);
    return names;
  }
  std::function<void()> before;  // called in each run(), on its thread
  std::function<void()> after;

 private:
  struct One {
    std::string name;
    std::span<const std::byte> from;
    std::span<std::byte> to;
  };
  CopyList copies_;
  Samples samples_;
  std::vector<One> all_;
};

}  // namespace holdfast::test
