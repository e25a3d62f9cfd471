#include "holdfast/cli/output/table.h"

#include <algorithm>
#include <ostream>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Counts characters, not bytes. Wide and combining characters count as one, which only makes a line crooked.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

void Table::add(std::vector<std::string> row) {
  if (row.size() != columns_.size()) throw Error("a table row of the wrong length");
  // Long enough if every byte is escaped as \xNN: a table never shortens a text.
  for (std::string& text : row) text = printable(text, 4 * text.size());
  rows_.push_back(std::move(row));
}

void Table::print(std::ostream& out, int indent) const {
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  for (const auto& row : rows_) {
    std::string line(static_cast<std::size_t>(indent), ' ');
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - width_of(row[c]), ' ');
      if (c != 0) line += "  ";
      line += columns_[c] == Align::right ? padding + row[c] : row[c] + padding;
    }
    // Blanks at the end would wrap at a narrow terminal, and nobody would see why.
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  }
}

}}  // namespace holdfast::v0_2
