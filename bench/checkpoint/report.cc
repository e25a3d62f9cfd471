#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "holdfast/base/error.h"
#include "statistics.h"

namespace holdfast::bench {
namespace {

double judged(const Row& row) { return row.of.empty() ? row.value : row.ratio; }

bool met(const Row& row) { return row.resolved() && row.goal->met(judged(row)); }

std::string short_number(double value) {
  return fixed(value, std::abs(value) < 0.0995 ? 4 : std::abs(value) < 9.95 ? 2 : 1);
}

std::string interval_text(const Row& row) {
  if (!row.interval) return "";
  const double low = row.interval->low * row.shown_times;
  return "95 %: " + short_number(low) + " to " + short_number(row.interval->high * row.shown_times);
}

void print_padded(const std::string& text, std::size_t width) {
  // Columns are counted in characters: every byte but the followers of a UTF-8 sequence.
  const auto shown = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
  std::printf("%s%*s", text.c_str(), std::max(0, static_cast<int>(width) - static_cast<int>(shown)), "");
}

}  // namespace

std::string goal_text(const Row& row) {
  if (!row.goal) return "";
  return (row.goal->kind == Goal::Kind::at_least ? ">= " : "<= ") + short_number(row.goal->bound);
}

std::string verdict(const Row& row) {
  if (!row.goal) return "";
  const double value = judged(row);
  if (!std::isfinite(value)) return "not measured";
  if (!row.resolved()) return "not resolved";
  if (row.goal->met(value)) return "met";
  const double off = std::abs(value - row.goal->bound) / row.goal->bound;
  return off < 2 ? "missed by " + fixed(off * 100, off < 0.0995 ? 1 : 0) + " %"
                 : "missed by a factor of " + fixed(value / row.goal->bound, 1);
}

Row share_of_ceiling(std::string key, std::string what, std::vector<double> samples, double bytes,
                     double best) {
  const double middle = median(samples);
  return {.key = std::move(key),
          .what = std::move(what),
          .value = middle,
          .text = milliseconds(middle) + ", " + per_second(bytes, middle),
          .of = "of the ceiling",
          .ratio = best / middle,
          .samples = std::move(samples)};
}

void Report::add(Section section) {
  std::printf("\n%s\n", section.title.c_str());
  std::size_t widest = 0;
  std::size_t widest_text = 0;
  for (const Row& row : section.rows) {
    widest = std::max(widest, row.what.size());
    widest_text = std::max(widest_text, row.text.size());
  }
  for (const Row& row : section.rows) {
    std::printf("  ");
    print_padded(row.what, widest + 2);
    print_padded(row.text, widest_text + 2);
    print_padded(row.of.empty() ? "" : short_number(row.ratio) + " " + row.of, 32);
    if (row.interval) print_padded(interval_text(row), row.goal ? 28 : 0);
    if (row.goal) std::printf("goal %s: %s", goal_text(row).c_str(), verdict(row).c_str());
    std::printf("\n");
    if (!row.note.empty()) std::printf("      %s\n", row.note.c_str());
  }
  std::fflush(stdout);
  sections_.push_back(std::move(section));
}

void Report::leave_out(std::string what, std::string why) {
  std::printf("\nleft out: %s: %s\n", what.c_str(), why.c_str());
  std::fflush(stdout);
  left_out_.push_back({std::move(what), std::move(why)});
}

void Report::print_summary() const {
  int goals = 0;
  int reached = 0;
  int unresolved = 0;
  for (const Section& section : sections_) {
    for (const Row& row : section.rows) {
      if (!row.goal) continue;
      ++goals;
      reached += met(row) ? 1 : 0;
      unresolved += row.resolved() ? 0 : 1;
    }
  }
  std::printf("\n%d of %d goals met, %d not resolved%s\n", reached, goals, unresolved,
              quick_ ? " (a quick run: these numbers mean nothing)" : "");
  for (const Section& section : sections_) {
    for (const Row& row : section.rows) {
      if (!row.goal || met(row)) continue;
      std::printf("  %s%s%s: %s, goal %s, %s%s%s\n", section.state.c_str(), section.state.empty() ? "" : ": ",
                  row.what.c_str(), short_number(judged(row)).c_str(), goal_text(row).c_str(),
                  verdict(row).c_str(), row.interval ? "; " : "", interval_text(row).c_str());
    }
  }
  for (const LeftOut& one : left_out_) std::printf("left out: %s: %s\n", one.what.c_str(), one.why.c_str());
}

void Report::write_json(const std::filesystem::path& file) const {
  using nlohmann::ordered_json;
  const auto number = [](double value) {
    return std::isfinite(value) ? ordered_json(value) : ordered_json();
  };
  ordered_json all;
  all["bench"] = "checkpoint";
  all["quick"] = quick_;
  all["machine"] = {{"cpu", machine_.cpu},
                    {"cores", machine_.cores},
                    {"memory_bytes", machine_.memory_bytes},
                    {"kernel", machine_.kernel},
                    {"file_system", machine_.file_system},
                    {"gpu", machine_.gpu},
                    {"time", machine_.time},
                    {"libtorch", machine_.libtorch}};
  all["sections"] = ordered_json::array();
  for (const Section& section : sections_) {
    ordered_json rows = ordered_json::array();
    for (const Row& row : section.rows) {
      ordered_json one = {
          {"key", row.key}, {"what", row.what}, {"value", number(row.value)}, {"text", row.text}};
      if (!row.of.empty()) {
        one["ratio"] = number(row.ratio);
        one["of"] = row.of;
      }
      if (row.goal) {
        one["goal"] = goal_text(row);
        one["met"] = met(row);
        one["resolved"] = row.resolved();
        one["verdict"] = verdict(row);
      }
      if (row.interval) one["interval_95"] = {number(row.interval->low), number(row.interval->high)};
      if (!row.note.empty()) one["note"] = row.note;
      one["samples"] = ordered_json::array();
      for (const double sample : row.samples) one["samples"].push_back(number(sample));
      rows.push_back(std::move(one));
    }
    all["sections"].push_back(
        {{"part", section.part}, {"state", section.state}, {"title", section.title}, {"rows", rows}});
  }
  all["left_out"] = ordered_json::array();
  for (const LeftOut& one : left_out_) all["left_out"].push_back({{"what", one.what}, {"why", one.why}});
  write_text(file, all.dump(1) + "\n");
}

void write_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::trunc);
  out << text;
  out.close();
  if (!out)
    throw Error("cannot write " + file.string() + "; choose another place with --output",
                ExitCode::io_failed);
}

}  // namespace holdfast::bench
