// Aligned columns for standard output.
//
// Errors: none. Threads: one.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace holdfast { inline namespace v0_2 {

class Table {
 public:
  enum class Align { left, right };

  explicit Table(std::vector<Align> columns) : columns_(std::move(columns)) {}

  // One text per column. Control characters and malformed UTF-8 are escaped, so no name in a file can control
  // the terminal.
  void add(std::vector<std::string> row);
  bool empty() const { return rows_.empty(); }
  // Two spaces between columns, `indent` spaces before the first, none at the end of a line.
  void print(std::ostream& out, int indent = 0) const;

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}}  // namespace holdfast::v0_2
