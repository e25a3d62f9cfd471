// The rows that the parts of the bench make, printed as they come.
//
// Errors: none. Threads: one.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::bench {

struct Row {
  std::string key;   // "copy.directory.100"
  std::string what;  // for people
  double value = 0;
  std::string unit;  // "of cp + fsync"; "MB"; "%"; "s"
  std::optional<double> at_least = {};
  std::optional<double> at_most = {};
  std::vector<double> samples = {};
  std::string note = {};
  std::string verdict() const;  // empty without a goal
};

class Report {
 public:
  void section(const std::string& title);
  void add(Row row);  // prints it
  void leave_out(const std::string& what, const std::string& why);
  nlohmann::ordered_json json() const;
  const std::vector<Row>& rows() const { return rows_; }

 private:
  std::vector<Row> rows_;
  std::vector<std::pair<std::string, std::string>> left_out_;
};

}  // namespace holdfast::bench
