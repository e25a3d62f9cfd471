// `training.csv` for pandas and spreadsheets: one row a step, each step once, after any number of
// interruptions. docs/metrics.md has the columns, and says what a resume does with existing
// rows.
//
//   CsvSink sink(FileSystem::real(), "run/training.csv");
//
// begin() opens the file, because then the resumed step is known and the volume is mounted. In your own loop
// call begin() after Checkpointer::resume(). Without it the first event counts as the resume, with attempt 0.
//
// Errors: the constructor throws IoError if the name belongs to something else than a regular file. A later
// error is logged once, and the sink then writes nothing more.
// Threads: one thread. A row costs one write(2) and no allocation.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"
#include "holdfast/io/file_system.h"
#include "holdfast/metrics/sink.h"

namespace holdfast { inline namespace v0_2 {

class CsvFile;

struct CsvOptions {
  // Keeps rows of later steps under another name at every resume. Default false: only at one that begins a
  // branch (BeginEvent::branch); otherwise these steps are computed again. Cost: one more file each time.
  bool keep_dropped = false;
};

class HOLDFAST_EXPORT CsvSink final : public MetricSink {
 public:
  CsvSink(FileSystem& file_system, std::filesystem::path path, const CsvOptions& options = {},
          const Clock& clock = Clock::real());
  ~CsvSink() override;

  void begin(const BeginEvent& event) override;
  void step(const StepEvent& event) override;
  void evaluation(const EvaluationEvent& event) override;
  std::function<void()> row_sync() override;
  bool failed() const { return failed_; }

 private:
  // Runs `write` with an open file, unless the sink has failed.
  template <class Write>
  void attempt_to(std::int64_t step, const Write& write);

  FileSystem& file_system_;
  std::filesystem::path path_;
  CsvOptions options_;
  const Clock& clock_;
  std::uint64_t attempt_ = 0;
  bool branch_ = false;
  std::unique_ptr<CsvFile> file_;  // null until begin()
  bool failed_ = false;
  std::array<char, 320> buffer_{};  // kCsvRowSize
};

}}  // namespace holdfast::v0_2
