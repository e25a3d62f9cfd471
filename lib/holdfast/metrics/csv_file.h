// The file behind csv.h. Opening it at a resume drops the rows that the new attempt computes again. Each step
// then appends a row with one write(2), and an evaluation completes the last row with another write.
//
//   CsvFile file(FileSystem::real(), "run/training.csv", {.step = 500, .attempt = 4});
//   file.append(fixed_columns);   // the row of step 501
//   file.complete(evaluation);    // its last two columns
//
// docs/metrics.md#csv says how a resume replaces the file, and when it keeps the old one.
// Errors: IoError. After a failed append() or complete() the file ends with a whole row if the disk permits.
// Threads: one thread.
// Durability: rows survive the end of the process, and power loss after a call of what sync() returns.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 {

struct CsvPosition {
  std::int64_t step = 0;      // resumed step; later rows are dropped
  std::uint64_t attempt = 0;  // of the following rows; 0: unknown
  bool keep_dropped = false;  // keep the old file if rows of later steps are dropped
};

class CsvFile {
 public:
  // Creates missing directories.
  CsvFile(FileSystem& file_system, const std::filesystem::path& path, const CsvPosition& position);

  // Throws IoError if the name belongs to something else than a regular file. Changes nothing.
  static void check(FileSystem& file_system, const std::filesystem::path& path);

  // `row`: the columns up to `attempt` with the comma after it (`fixed` bytes), then ",\n" for an empty
  // evaluation.
  void append(std::string_view row, std::size_t fixed, std::int64_t step);
  // Gives the last row its evaluation. `text` ends with a newline.
  void complete(std::string_view text);
  std::int64_t last_step() const { return last_step_; }  // -1: no row
  std::function<void()> sync() const;                    // MetricSink::row_sync()

 private:
  void cut_to(std::uint64_t length) noexcept;

  std::filesystem::path path_;
  std::shared_ptr<Directory> directory_;
  std::shared_ptr<File> file_;
  std::uint64_t end_ = 0;         // end of the last whole row
  std::uint64_t evaluation_ = 0;  // start of the last row's evaluation
  std::int64_t last_step_ = -1;
};

}}  // namespace holdfast::v0_2
