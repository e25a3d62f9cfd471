// Points of a series, each in a child process that others before it may have used already: a crash or a hang
// costs the child, is counted, and the next child goes on behind it.
//
// Threads: one; the children fork before any thread exists.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace holdfast::test::memory {

// What one point came to; written in the child, read in the parent.
struct Point {
  std::uint64_t requests = 0;
  bool fired = false;
  bool elsewhere = false;  // the refused request was not the training thread's
  char problem[240] = {};  // in a sentence; empty: the promise was kept
  bool lost = false;       // the problem is a loss

  void complain(const std::string& what, bool loss = false);
};

class Series {
 public:
  virtual ~Series() = default;
  // In the child, before its first point.
  virtual void begin() = 0;
  virtual void run(std::uint64_t nth, Point& point) = 0;
};

struct Report {
  int planned = 0;
  int fired = 0;
  int elsewhere = 0;
  int lost = 0;
  int crashes = 0;   // and hangs
  int problems = 0;  // of other kinds
  std::vector<std::string> shown;

  Report& operator+=(const Report& other);
};

// Runs the points first, first + stride … up to last, at most `per_child` in one process.
Report run_points(const std::string& name, const std::function<std::unique_ptr<Series>()>& make,
                  std::uint64_t last, std::uint64_t stride, int per_child);

}  // namespace holdfast::test::memory
