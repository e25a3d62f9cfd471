// The late copy of plain vectors that stay where they are, for sources that tests are made of.
//
// Threads: as LateCopy says.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/snapshot/copy_list.h"
#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast::test {

class VectorCopies final : public LateCopy {
 public:
  void add(std::string name, std::span<const std::byte> from, std::span<std::byte> to) {
    copies_.add(from, to);
    all_.push_back({std::move(name), from, to});
  }
  void run() noexcept override {
    if (before) before();
    copies_.work();
    if (after) after();
  }
  std::vector<std::string> changed() const override {
    std::vector<std::string> names;
    for (const auto& [name, from, to] : all_) {
      if (!std::equal(from.begin(), from.end(), to.begin())) names.push_back(name);
    }
    return names;
  }
  std::function<void()> before;  // each run(), on its thread
  std::function<void()> after;

 private:
  struct One {
    std::string name;
    std::span<const std::byte> from;
    std::span<std::byte> to;
  };
  CopyList copies_;
  std::vector<One> all_;
};

}  // namespace holdfast::test
