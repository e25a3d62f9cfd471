#include "holdfast/checkpoint/internal/end_record.h"

#include <exception>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

std::optional<std::string> write_end(CheckpointStore& store, Ledger& ledger, const RunState& end) noexcept {
  try {
    ledger.end({.phase = end.phase,
                .exit_code = end.exit_code,
                .step = end.step,
                .durable_step = end.durable_step,
                .reason = end.reason},
               [&](const std::string& line) { store.write_ledger(line); });
  } catch (const std::exception& error) {
    // The run state must still be written: `holdfast status` and `ls` read from it how the run ended.
    log_debug("the end of the run could not be written to the ledger: {}", what_of(error));
  }
  try {
    store.write_run_state(end);
  } catch (const SupersededError& error) {
    log_warning("{}; this attempt stops and leaves the directory alone", error.what());
    return text_or_out_of_memory([&] { return std::string(error.what()); });
  } catch (const std::exception& error) {
    log_warning("the run state could not be written: {}", what_of(error));
  }
  return std::nullopt;
}

}}}  // namespace holdfast::v0_2::internal
