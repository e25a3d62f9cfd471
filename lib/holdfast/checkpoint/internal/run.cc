#include "holdfast/checkpoint/internal/run.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/staging/run_record.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

Run::Run(SnapshotSource& the_source, CheckpointerOptions the_options)
    : options(std::move(the_options)),
      source(the_source),
      file_system(options.start.seams.file_system ? *options.start.seams.file_system : FileSystem::real()),
      clock(options.start.seams.clock ? *options.start.seams.clock : Clock::real()),
      ledger(clock),
      monitor(clock),
      verifier(std::max(options.writing.threads, kReadThreads)),
      stager(source, options.writing.second_image ? 2 : 1),
      book(std::make_shared<SaveBook>(clock, options.writing.on_save)),
      time(clock, costs, *book) {
  set_log_run(options.directory.string());
  // A simulated clock gives times that mean nothing to a reader of the log.
  if (options.start.seams.clock == nullptr) show_log_times(true);
  // The next checkpoint most likely has the same tensors, so its file is laid out while this one is read.
  verifier.when_reading([this](const CheckpointIndex& index) {
    std::vector<TensorSpec> tensors;
    tensors.reserve(index.tensors.size());
    for (const IndexedTensor& tensor : index.tensors) tensors.push_back(tensor.spec);
    const std::uint64_t usual = usual_attribute_capacity(tensors);
    stager.plan_beside(std::move(tensors), std::max(usual, index.attribute_capacity));
  });
}

OnNotice ask_policy(const NoticeOptions& options, const Notice& notice, SteadyTime now) noexcept {
  try {
    const OnNotice chosen = options.decide(notice, time_until(*notice.deadline, now));
    // A function that answers `callback` has decided nothing.
    return chosen == OnNotice::callback ? OnNotice::train_on : chosen;
  } catch (const std::exception& error) {
    log_warning("what to do about the notice could not be decided ({}): training on", what_of(error));
  } catch (...) {
    log_warning("what to do about the notice could not be decided: training on");
  }
  return OnNotice::train_on;
}

bool Run::start_must_end() noexcept {
  if (monitor.stop_requested()) return true;
  try {
    const SteadyTime now = clock.now();
    auto notice = monitor.standing();
    // A standby's machine that has outlived its announced end may claim again.
    for (; notice && now >= *notice->deadline + kAliveAfter; notice = monitor.standing()) {
      monitor.dismiss(now - kAliveAfter);
    }
    if (!notice || notice->hibernates) return false;
    if (options.notices.on_notice != OnNotice::callback) return options.notices.on_notice == OnNotice::exit;
    if (!answered_ || answered_->first != *notice->seen) {
      answered_ = {*notice->seen, OnNotice::train_on};  // for what the program asks in its answer
      answered_->second = ask_policy(options.notices, *notice, now);
    }
    return answered_->second == OnNotice::exit;
  } catch (const std::bad_alloc&) {
    return false;  // asked again at the next look
  }
}

std::int64_t Run::newest_durable() const noexcept {
  return std::max(writer ? writer->last_step() : -1, started.durable.step);
}

Durable Run::last_durable() const {
  if (writer) {
    AsyncWriter::Acknowledged last = writer->last_acknowledged();
    if (last.step >= 0) return {last.step, std::move(last.checkpoint), last.when};
  }
  return started.durable;
}

}}}  // namespace holdfast::v0_2::internal
