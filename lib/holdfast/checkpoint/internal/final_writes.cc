#include "holdfast/checkpoint/internal/final_writes.h"

#include <exception>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/thread/block_signals.h"
#include "holdfast/checkpoint/internal/end_record.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// How soon a notice is heard.
constexpr Duration kHearEvery = std::chrono::milliseconds(50);
// What follows the last save takes milliseconds, so even a deadline that has just passed leaves it this long.
constexpr Duration kAfterwards = std::chrono::seconds(1);
constexpr Duration kSayEvery = std::chrono::seconds(30);
constexpr char kForTheDisk[] = "waiting for the disk";

// Only now: before an announced end the last save and the end itself come first. Whoever takes over from here
// on finds a directory that is tidy already, or tidies it.
void delete_superfluous(CheckpointStore& store) noexcept {
  try {
    store.apply_retention_at_end();
  } catch (const SupersededError&) {  // whoever waited for the end has the directory
  } catch (const std::exception& error) {
    log_warning("superfluous checkpoints stay for now: {}", what_of(error));
  }
}

// On another thread, because a disk that hangs must not hold this one.
std::future<std::optional<std::string>> write_beside(CheckpointStore& store, Ledger& ledger, RunState end) {
  const auto write = [&store, &ledger, end = std::move(end)] {
    auto superseded = write_end(store, ledger, end);
    // Its writer has left them (AsyncWriter::leave_soon).
    if (!superseded) delete_superfluous(store);
    return superseded;
  };
  try {
    const BlockSignals block;
    return std::async(std::launch::async, write);
  } catch (const std::exception&) {  // no thread, or no memory for one
    auto written = std::async(std::launch::deferred, write);
    written.wait();
    return written;
  }
}

}  // namespace

bool FinalWrites::wait(const std::function<bool(Duration)>& done, Duration at_least, const char* what) {
  const SteadyTime began = run_.clock.now();
  SteadyTime said = began;
  for (Duration slice = at_least; !done(slice); slice = kHearEvery) {
    driver_.listener().heard();
    if (driver_.out_of_time(began)) {
      gave_up_ = true;
      return false;
    }
    if (run_.clock.now() - said >= kSayEvery) {
      said = run_.clock.now();
      log_info("still {} ({:.0f} s so far)", what, std::chrono::duration<double>(said - began).count());
    }
  }
  return true;
}

bool FinalWrites::stop_writer() {
  return wait([this](Duration limit) { return run_.writer->stop_within(limit); }, kAfterwards, kForTheDisk);
}

std::optional<std::string> FinalWrites::tell(RunState end) {
  told_ = write_beside(*run_.started.store, run_.ledger, std::move(end));
  const auto is_told = [this](Duration limit) { return told_.wait_for(limit) == std::future_status::ready; };
  return wait(is_told, kAfterwards, kForTheDisk) ? told_.get() : std::nullopt;
}

}}}  // namespace holdfast::v0_2::internal
