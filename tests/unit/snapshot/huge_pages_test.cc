// Which memory is advised: the kernel shows it as the flag "hg" in /proc/self/smaps.
#include "holdfast/snapshot/huge_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdio>
#include <fstream>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/round_up.h"

namespace holdfast::test { namespace {

// Of the mapping with that byte.
bool advised(const std::byte* at) {
  const auto wanted = reinterpret_cast<unsigned long>(at);
  std::ifstream maps("/proc/self/smaps");
  bool within = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) within = begin <= wanted && wanted < end;
    if (within && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

class HugePages : public testing::Test {
 protected:
  static constexpr std::size_t kMapped = 6 * kHugePage;

  HugePages() {
    raw_ = mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw_ == MAP_FAILED) throw std::bad_alloc();
    base = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(raw_), kHugePage));
  }
  ~HugePages() override { munmap(raw_, kMapped); }
  void SetUp() override {
    // Asks the kernel itself: some know no such advice.
    if (madvise(base + 4 * kHugePage, kHugePage, MADV_HUGEPAGE) != 0 || !advised(base + 4 * kHugePage)) {
      GTEST_SKIP() << "this kernel has no huge pages for programs";
    }
  }

  std::byte* base = nullptr;  // the first huge page; five are there

 private:
  void* raw_ = nullptr;
};

TEST_F(HugePages, NeighboursShareThem) {
  // Each is smaller than a huge page, and an allocator's words lie between them.
  const std::size_t size = kHugePage * 3 / 4;
  std::vector<std::span<std::byte>> memory;
  for (std::size_t i = 4; i-- > 0;) memory.emplace_back(base + i * (size + 4096), size);
  advise_huge_pages(std::move(memory));
  EXPECT_TRUE(advised(base));
  EXPECT_TRUE(advised(base + 3 * kHugePage - 1));
  EXPECT_FALSE(advised(base + 3 * kHugePage)) << "it is not ours whole";
}

TEST_F(HugePages, WhatLiesBetweenIsLeftAlone) {
  advise_huge_pages({{base, kHugePage + 4096}, {base + 2 * kHugePage, kHugePage + 8192}});
  EXPECT_TRUE(advised(base));
  EXPECT_FALSE(advised(base + kHugePage));
  EXPECT_TRUE(advised(base + 2 * kHugePage));
  EXPECT_FALSE(advised(base + 3 * kHugePage));
}

TEST_F(HugePages, OfSmallMemoryNothingIsAdvised) {
  advise_huge_pages({{base + 64, kHugePage}});
  advise_huge_pages({});
  EXPECT_FALSE(advised(base));
  EXPECT_FALSE(advised(base + kHugePage));
}

}}  // namespace holdfast::test
