// The finished rows of a table as the state of a run: a TrainState that holdfast::Checkpointer commits after
// each row, so that an interruption costs the row in hand and no other.
//
//   Session session({.folder = "table.run", .options = {{"scale", 0.5}}});
//   if (const Row* row = session.find(cell)) …                      // an earlier attempt measured it
//   while (!session.told_to_stop()) session.add(measure(…));
//   return session.finish();
//
// Whatever changes figures is an option of the run: it must be what it was (RefusedError, exit code 78,
// naming each difference). When all is done the folder goes: the next run measures anew.
//
// Errors: of Checkpointer, and UsageError when the folder is there and is none of these. Threads: one thread.
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
  bool fresh = false;  // forget what earlier attempts have measured
};

class Session {
 public:
  // Resumes.
  explicit Session(const SessionOptions& options);
  ~Session();

  std::size_t found() const;                // rows that earlier attempts measured
  const Row* find(const Cell& cell) const;  // by its name: a pass of another size may have been what fits
  void add(const Row& row);
  // A signal, or a notice that the machine is going. Cheap enough to be asked between steps.
  bool told_to_stop();
  // `complete`: there is nothing left to measure. Returns the exit code: 0, or 75 when the same command would
  // go on.
  int finish(bool complete);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace holdfast::bench
