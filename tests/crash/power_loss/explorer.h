// Cuts the power after every operation of seeded histories, in every way the model knows, and judges each
// disk that this could leave.
//
// A history is up to four process lives on one volume, empty at first. A life ends with a power cut or a kill
// somewhere in its middle (the next one goes on from there), sometimes with rot in the newest file; it may
// keep 2 or 3 files, begin from an older step, save what is not finite. After every
// operation of it: all subsets of up to 10 open operations, beyond that none, all, all but one, only one, and
// seeded random ones; each also with torn blocks. On one disk in eight the run goes on for a save, with a
// second cut somewhere in it.
//
// Threads: explore() starts its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "file_maker.h"

namespace holdfast::test::power_loss {

// One moment and one cut in it: all that a replay needs.
struct Point {
  std::uint64_t seed = 0;
  std::uint64_t life = 0;
  std::uint64_t operation = 0;
  std::uint64_t kept = 0;
  std::uint64_t torn = 0;
  std::uint64_t tear_seed = 0;
};
std::string to_text(const Point& point);  // "seed:life:operation:kept:torn:tear", numbers in hex
std::optional<Point> point_from_text(const std::string& text);

struct Request {
  std::uint64_t states = 0;  // distinct disks to judge
  std::uint64_t first_seed = 1;
  int threads = 2;
  int stop_after = 5;  // failures
  std::optional<Point> replay = {};
  std::function<std::unique_ptr<FileMaker>()> files = opaque_files;
};

struct Failure {
  std::string text;  // what is broken, after which operation, which of the open ones were kept
  Point point;
};

struct Result {
  std::uint64_t states = 0;  // distinct disks by names, sizes and bytes
  std::uint64_t judged = 0;  // starts of a run: the same disk after another promise counts again
  std::uint64_t second = 0;  // of them after a second cut
  std::uint64_t points = 0;  // operations cut after
  std::uint64_t histories = 0;
  std::uint64_t lost = 0;
  std::uint64_t stuck = 0;
  std::uint64_t silent = 0;
  double seconds = 0;
  std::vector<Failure> failures;
  std::string summary() const;  // "power loss: N distinct states in S s, 0 lost, 0 stuck, 0 silent"
};

Result explore(const Request& request);

}  // namespace holdfast::test::power_loss
