// The finished rows of a table as a TrainState that holdfast::Checkpointer commits after each row. An
// interruption loses only the present row.
//
//   Session session({.folder = "table.run", .options = {{"scale", 0.5}}});
//   if (const Row* row = session.find(cell)) …                      // an earlier attempt measured it
//   while (!session.told_to_stop()) session.add(measure(…));
//   return session.finish(complete);
//
// Everything that changes figures is an option of the run and must be unchanged on resume (RefusedError, 78).
// When all rows are done the folder is removed, so the next run measures again. Errors: those of
// Checkpointer; UsageError if the folder exists and is no session. Threads: one thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/snapshot/attributes.h"
#include "table.h"

namespace holdfast::bench {

struct SessionOptions {
  std::filesystem::path folder;
  std::vector<std::pair<std::string, AttributeValue>> options;
  bool fresh = false;  // discards what earlier attempts measured
};

class Session {
 public:
  // Resumes.
  explicit Session(const SessionOptions& options);
  ~Session();

  std::size_t found() const;                // rows of earlier attempts
  const Row* find(const Cell& cell) const;  // by name, because another pass size may have been used
  void add(const Row& row);
  // True after a signal or a notice. Cheap enough to call between steps.
  bool told_to_stop();
  // `complete`: nothing is left to measure. Returns the exit code: 0, or 75 if the same command would
  // continue.
  int finish(bool complete);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace holdfast::bench
