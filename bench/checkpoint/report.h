// The results: rows with their goals, printed as a table during the bench, then written as JSON and as a
// chart.
//
// Errors: writing functions throw Error, which names the file. Threads: one thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "machine.h"
#include "statistics.h"

namespace holdfast::bench {

struct Goal {
  enum class Kind { at_least, at_most };
  Kind kind = Kind::at_least;
  double bound = 0;
  bool met(double value) const { return kind == Kind::at_least ? value >= bound : value <= bound; }
};

// One measured figure. Its goal is about `ratio` if `of` names a reference, otherwise about `value`.
struct Row {
  std::string key;      // "durable.holdfast": stable, for programs
  std::string what;     // for people
  double value = 0;     // the median
  std::string text;     // the median with its unit, and more
  std::string of = {};  // "of the ceiling", "times as fast"
  double ratio = 0;
  std::optional<Goal> goal = {};
  std::vector<double> samples = {};
  std::string note = {};
  std::optional<Interval> interval = {};  // 95 %, of what the goal is about
  double shown_times = 1;                 // `text` shows seconds as milliseconds: 1000; its interval, too

  // False if the interval is wider than the goal: the run cannot say whether the goal is met.
  bool resolved() const { return !goal || !interval || interval->width() <= goal->bound; }
};

// The median of `samples`, seconds for so many bytes, as a share of the ceiling's.
Row share_of_ceiling(std::string key, std::string what, std::vector<double> samples, double bytes,
                     double best);

struct Section {
  std::string part;   // "commit"
  std::string state;  // "resnet50"; empty if it does not matter
  std::string title;
  std::vector<Row> rows;
};

struct LeftOut {
  std::string what;
  std::string why;  // with what to do about it
};

class Report {
 public:
  Report(Machine machine, bool quick) : machine_(std::move(machine)), quick_(quick) {}

  void add(Section section);  // prints it
  void leave_out(std::string what, std::string why);
  // Prints the goals that were met, and what was left out.
  void print_summary() const;
  void write_json(const std::filesystem::path& file) const;
  // Bars of durable writes as shares of the ceiling. Without measurements: an empty chart that says so.
  void write_chart(const std::filesystem::path& file) const;

 private:
  Machine machine_;
  bool quick_;
  std::vector<Section> sections_;
  std::vector<LeftOut> left_out_;
};

// "met", "missed by 12 %" or "not resolved".
std::string verdict(const Row& row);
std::string goal_text(const Row& row);  // ">= 0.90"; empty without one

// Error unless all of `text` was written to `file`.
void write_text(const std::filesystem::path& file, const std::string& text);

}  // namespace holdfast::bench
