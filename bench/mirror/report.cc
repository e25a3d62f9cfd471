#include "report.h"

#include <cstdio>
#include <utility>

namespace holdfast::bench {

std::string Row::verdict() const {
  if (!at_least && !at_most) return "";
  const bool met = (!at_least || value >= *at_least) && (!at_most || value <= *at_most);
  char goal[32];
  std::snprintf(goal, sizeof goal, "%s %g", at_least ? ">=" : "<=", at_least ? *at_least : *at_most);
  return std::string(met ? "met" : "missed") + " (goal " + goal + ")";
}

void Report::section(const std::string& title) { std::printf("\n%s\n", title.c_str()); }

void Report::add(Row row) {
  std::printf("  %-66s %9.4g %-26s %s%s\n", row.what.c_str(), row.value, row.unit.c_str(),
              row.verdict().c_str(), row.note.empty() ? "" : ("  " + row.note).c_str());
  std::fflush(stdout);
  rows_.push_back(std::move(row));
}

void Report::leave_out(const std::string& what, const std::string& why) {
  std::printf("  left out: %s: %s\n", what.c_str(), why.c_str());
  left_out_.emplace_back(what, why);
}

nlohmann::ordered_json Report::json() const {
  nlohmann::ordered_json all;
  all["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : rows_) {
    nlohmann::ordered_json one = {
        {"key", row.key}, {"what", row.what}, {"value", row.value}, {"unit", row.unit}};
    if (row.at_least) one["at_least"] = *row.at_least;
    if (row.at_most) one["at_most"] = *row.at_most;
    if (!row.samples.empty()) one["samples"] = row.samples;
    if (!row.note.empty()) one["note"] = row.note;
    all["rows"].push_back(std::move(one));
  }
  all["left_out"] = nlohmann::ordered_json::object();
  for (const auto& [what, why] : left_out_) all["left_out"][what] = why;
  return all;
}

}  // namespace holdfast::bench
