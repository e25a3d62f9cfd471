#include "holdfast/metrics/csv_row.h"

#include <charconv>
#include <chrono>

#include "holdfast/metrics/buffer_writer.h"

namespace holdfast { inline namespace v0_2 {
namespace {

double seconds_of(WallTime time) {
  // Milliseconds are enough, and a double holds them for any year that a run will see.
  const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch());
  return static_cast<double>(milliseconds.count()) / 1e3;
}

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
  BufferWriter row(buffer);
  row.integer(event.epoch).text(",").integer(event.step).text(",").integer(event.samples).text(",");
  row.number(seconds_of(time)).text(",").number(event.learning_rate).text(",").number(event.loss).text(",");
  if (event.accuracy) row.number(*event.accuracy);
  return row.text(",").integer(attempt).text(",").done();
}

std::string_view write_csv_step(const EvaluationEvent& event, WallTime time, std::uint64_t attempt,
                                std::span<char> buffer) {
  // The row of a step that this file does not have: columns of the training stay empty.
  BufferWriter row(buffer);
  row.integer(event.epoch).text(",").integer(event.step).text(",,");
  return row.number(seconds_of(time)).text(",,,,").integer(attempt).text(",").done();
}

std::string_view write_csv_evaluation(const EvaluationEvent& event, std::span<char> buffer) {
  return BufferWriter(buffer).number(event.loss).text(",").number(event.accuracy).done();
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
