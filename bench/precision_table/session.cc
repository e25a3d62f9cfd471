#include "session.h"

#include "holdfast/base/error.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/state/train_state.h"
#include "row_text.h"

namespace holdfast::bench {
namespace {

namespace fs = std::filesystem;

// Only what a Checkpointer made.
void remove_run(const fs::path& folder) {
  if (!fs::exists(folder)) return;
  if (!fs::is_directory(folder / "attempts")) {
    throw UsageError(folder.string() + " is no run of this bench; choose another --output");
  }
  fs::remove_all(folder);
}

}  // namespace

struct Session::State {
  // A Stateful part: texts of rows.
  struct Rows {
    std::vector<Row> rows;

    void save(StateWriter& out) const {
      std::vector<std::string> texts;
      for (const Row& row : rows) texts.push_back(text_of(row));
      out.put("rows", texts);
    }
    void load(const StateReader& in) {
      rows.clear();
      for (const std::string& text : in.get_strings("rows")) rows.push_back(row_of(text));
    }
  };

  explicit State(const SessionOptions& options)
      : folder(options.folder),
        // Everything lies beneath "/": on the root disk, too, without a warning. A table is no week's work.
        checkpointer(train, {.directory = folder, .mount = "/", .every = {SaveEvery::steps(1)}}) {
    train.add("table", rows);
    for (const auto& [name, value] : options.options) train.option(name, value);
  }

  fs::path folder;
  Rows rows;
  TrainState train;
  Checkpointer checkpointer;
  std::size_t found = 0;
  bool stopped = false;
};

Session::Session(const SessionOptions& options) {
  if (options.fresh) remove_run(options.folder);
  state_ = std::make_unique<State>(options);
  try {
    state_->checkpointer.resume();
  } catch (const RefusedError& error) {
    throw RefusedError(std::string(error.what()) +
                       " (a table has one set of options: --fresh begins it anew, another --output a second "
                       "one)");
  }
  state_->found = state_->rows.rows.size();
}

Session::~Session() = default;

std::size_t Session::found() const { return state_->found; }

const Row* Session::find(const Cell& cell) const {
  for (const Row& row : state_->rows.rows) {
    if (name_of(row.cell) == name_of(cell)) return &row;
  }
  return nullptr;
}

void Session::add(const Row& row) {
  state_->rows.rows.push_back(row);
  state_->stopped = state_->checkpointer.after_step().stop || state_->stopped;
}

bool Session::told_to_stop() {
  state_->stopped = state_->checkpointer.tick() || state_->stopped;
  return state_->stopped;
}

int Session::finish(bool complete) {
  const int code = state_->checkpointer.finish();
  if (code != 0 || !complete) return code;
  const fs::path folder = state_->folder;
  state_.reset();
  remove_run(folder);
  return code;
}

}  // namespace holdfast::bench
