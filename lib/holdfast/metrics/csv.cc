#include "holdfast/metrics/csv.h"

#include <exception>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/metrics/csv_file.h"
#include "holdfast/metrics/csv_row.h"

namespace holdfast { inline namespace v0_2 {
namespace {

static_assert(sizeof(std::array<char, 320>) >= kCsvRowSize);

// Appends `more` to `text`, which lies at the start of `buffer`.
std::string_view add(std::string_view text, std::string_view more, std::span<char> buffer) {
  return {text.data(), text.size() + more.copy(buffer.data() + text.size(), buffer.size() - text.size())};
}

}  // namespace

CsvSink::CsvSink(FileSystem& file_system, std::filesystem::path path, const CsvOptions& options,
                 const Clock& clock)
    : file_system_(file_system), path_(std::move(path)), options_(options), clock_(clock) {
  // Checked before the run starts, when a wrong name can still end it with a message.
  CsvFile::check(file_system_, path_);
}

CsvSink::~CsvSink() = default;

template <class Write>
void CsvSink::attempt_to(std::int64_t step, const Write& write) {
  if (failed_) return;
  try {
    if (!file_) {
      const CsvPosition position{
          .step = step, .attempt = attempt_, .keep_dropped = branch_ || options_.keep_dropped};
      file_ = std::make_unique<CsvFile>(file_system_, path_, position);
    }
    write();
  } catch (const std::exception& error) {
    // Given up for good: a row that is missing in between could not be told from one that never was.
    failed_ = true;
    log_warning("no more metrics are written to {} (training goes on): {}", path_, what_of(error));
  }
}

void CsvSink::begin(const BeginEvent& event) {
  attempt_ = event.attempt;
  branch_ = event.branch;
  attempt_to(event.step, [] {});
}

void CsvSink::step(const StepEvent& event) {
  attempt_to(event.step - 1, [&] {
    // A step that the program reports twice must not break the order of the rows.
    if (event.step <= file_->last_step()) return;
    const std::string_view fixed = write_csv_step(event, clock_.wall_now(), attempt_, buffer_);
    file_->append(add(fixed, ",\n", buffer_), fixed.size(), event.step);
  });
}

void CsvSink::evaluation(const EvaluationEvent& event) {
  attempt_to(event.step, [&] {
    // The evaluation of an older step cannot be added, because rows are in the order of steps.
    if (event.step < file_->last_step()) return;
    if (event.step > file_->last_step()) {  // the file was created after this step
      const std::string_view fixed = write_csv_step(event, clock_.wall_now(), attempt_, buffer_);
      file_->append(add(fixed, ",\n", buffer_), fixed.size(), event.step);
    }
    file_->complete(add(write_csv_evaluation(event, buffer_), "\n", buffer_));
  });
}

std::function<void()> CsvSink::row_sync() { return file_ ? file_->sync() : nullptr; }

}}  // namespace holdfast::v0_2
