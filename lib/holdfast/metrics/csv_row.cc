#include "holdfast/metrics/csv_row.h"

#include <charconv>
#include <chrono>

#include "holdfast/base/bits.h"

namespace holdfast { inline namespace v0_2 {
namespace {

class RowWriter {
 public:
  explicit RowWriter(std::span<char> buffer) : buffer_(buffer) {}

  RowWriter& comma() {
    buffer_[used_++] = ',';
    return *this;
  }
  template <class Integer>
  RowWriter& integer(Integer value) {
    used_ = static_cast<std::size_t>(std::to_chars(rest().data(), rest().data() + rest().size(), value).ptr -
                                     buffer_.data());
    return *this;
  }
  RowWriter& number(double value) {
    used_ += write_shortest_decimal(value, rest());
    return *this;
  }
  RowWriter& time(WallTime value) {
    // Milliseconds are enough, and a double holds them for any year that a run will see.
    const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(value.time_since_epoch());
    return number(static_cast<double>(milliseconds.count()) / 1e3);
  }
  std::string_view done() const { return {buffer_.data(), used_}; }

 private:
  std::span<char> rest() const { return buffer_.subspan(used_); }

  std::span<char> buffer_;
  std::size_t used_ = 0;
};

template <class Number>
std::optional<Number> parse(std::string_view field) {
  Number number{};
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  return number;
}

bool empty_or_number(std::string_view field) { return field.empty() || parse<double>(field).has_value(); }

// Takes the first field and its comma from `rest`. nullopt if there is no comma.
std::optional<std::string_view> take_field(std::string_view& rest) {
  const std::size_t comma = rest.find(',');
  if (comma == std::string_view::npos) return std::nullopt;
  const std::string_view field = rest.substr(0, comma);
  rest.remove_prefix(comma + 1);
  return field;
}

bool is_evaluation(std::string_view text) {
  const auto loss = take_field(text);
  // Both values or none: half an evaluation is a torn row.
  return loss && empty_or_number(*loss) && empty_or_number(text) && loss->empty() == text.empty();
}

}  // namespace

std::string_view write_csv_step(const StepEvent& event, WallTime time, std::uint64_t attempt,
                                std::span<char> buffer) {
  RowWriter row(buffer);
  row.integer(event.epoch).comma().integer(event.step).comma().integer(event.samples).comma();
  row.time(time).comma().number(event.learning_rate).comma().number(event.loss).comma();
  if (event.accuracy) row.number(*event.accuracy);
  row.comma().integer(attempt).comma();
  return row.done();
}

std::string_view write_csv_step(const EvaluationEvent& event, WallTime time, std::uint64_t attempt,
                                std::span<char> buffer) {
  // The row of a step that this file does not have: columns of the training stay empty.
  RowWriter row(buffer);
  row.integer(event.epoch).comma().integer(event.step).comma().comma();
  row.time(time).comma().comma().comma().comma().integer(attempt).comma();
  return row.done();
}

std::string_view write_csv_evaluation(const EvaluationEvent& event, std::span<char> buffer) {
  RowWriter row(buffer);
  return row.number(event.loss).comma().number(event.accuracy).done();
}

std::optional<CsvRow> parse_csv_row(std::string_view line) {
  std::string_view rest = line;
  const auto epoch = take_field(rest);
  const auto step = take_field(rest);
  if (!epoch || !step || !parse<std::int64_t>(*epoch)) return std::nullopt;
  const auto number = parse<std::int64_t>(*step);
  if (!number || *number < 0) return std::nullopt;
  for (int column = 0; column < 5; ++column) {  // samples, time, lr, loss, accuracy
    const auto field = take_field(rest);
    if (!field || !empty_or_number(*field)) return std::nullopt;
  }
  const auto attempt_field = take_field(rest);
  const auto attempt = attempt_field ? parse<std::uint64_t>(*attempt_field) : std::nullopt;
  if (!attempt) return std::nullopt;
  CsvRow row{.step = *number, .attempt = *attempt, .fixed = line.substr(0, line.size() - rest.size())};
  row.whole = is_evaluation(rest);
  if (row.whole) row.evaluation = rest;
  return row;
}

}}  // namespace holdfast::v0_2
