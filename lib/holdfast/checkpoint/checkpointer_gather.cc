// From several empty processes to one training state: rank 0 finds and claims it, and what it has read goes
// to all others byte by byte, so that nobody else needs to see the volume. Each verifies every digest itself.
#include <cerrno>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"
#include "holdfast/checkpoint/internal/ranked_state.h"
#include "holdfast/checkpoint/internal/received_file.h"

namespace holdfast::inline v1 {
namespace {

using nlohmann::json;

// Rank 0 may wait for its volume and read a large state; that it has died or hangs is noticed by the store.
constexpr Duration kVerdictWait = std::chrono::hours(1);

json failure_of(const Error& error) {
  return {{"error", error.what()}, {"code", static_cast<int>(error.exit_code())}};
}

void throw_if_failed(const json& told, int rank) {
  if (!told.contains("error")) return;
  throw Error("rank " + std::to_string(rank) + ": " + told.value("error", std::string()),
              static_cast<ExitCode>(told.value("code", static_cast<int>(ExitCode::internal))));
}

}  // namespace

Resumed Checkpointer::State::lead() {
  Companions& companions = crew->companions;
  record.world_size = crew->world_size();
  Resumed resumed;
  std::unique_ptr<File> file;
  try {
    resumed = resume_alone();
    file = file_to_share(resumed);
  } catch (const Error& error) {
    crew->tell(internal::kVerdict, failure_of(error));
    throw;
  } catch (const std::bad_alloc&) {
    crew->tell(internal::kVerdict, failure_of(OutOfMemoryError()));
    throw;
  }
  try {
    crew->tell(internal::kVerdict, {{"attempt", record.attempt},
                                    {"fresh", resumed.fresh},
                                    {"checkpoint", resumed.checkpoint},
                                    {"durable", started_from.step},
                                    {"bytes", file ? file->size() : 0}});
    if (file) internal::send_file(companions, *file);
    return all_ready(std::move(resumed));
  } catch (const Error& error) {
    abandon(error);
    throw;
  }
}

// Rank 0 has verified it a moment ago, and nothing deletes it before the first commit.
std::unique_ptr<File> Checkpointer::State::file_to_share(const Resumed& resumed) {
  std::filesystem::path path = options.init_from;
  if (!resumed.fresh) {
    path = std::filesystem::path(resumed.checkpoint);
    if (outside.empty()) path = options.directory / path;
  }
  if (path.empty()) return nullptr;
  auto file = file_system.open_file(path, OpenMode::read);
  if (!file) throw IoError("open", path.native(), ENOENT, "it vanished while the ranks were starting");
  return file;
}

Resumed Checkpointer::State::follow() {
  const SteadyTime began = clock.now();
  Companions& companions = crew->companions;
  record.world_size = crew->world_size();
  const json verdict = crew->hear(0, internal::kVerdict, options.mount_wait + kVerdictWait);
  throw_if_failed(verdict, 0);
  std::unique_ptr<File> file;
  if (const auto bytes = verdict.value("bytes", std::uint64_t{0}); bytes > 0) {
    file = internal::receive_file(companions, bytes);
  }
  record.attempt = verdict.value("attempt", AttemptNumber{0});
  Start start;
  start.fresh = verdict.value("fresh", true);
  start.name = verdict.value("checkpoint", std::string());
  Resumed resumed;
  resumed.fresh = start.fresh;
  resumed.loss = std::numeric_limits<double>::quiet_NaN();
  try {
    if (start.fresh && source.step() != 0) {
      throw UsageError("the training state stands at step " + std::to_string(source.step()) +
                       " before a fresh start; call resume() before the first update");
    }
    if (start.fresh && file) {
      auto weights = weights_in(*file);
      if (const auto* const rejection = std::get_if<Rejection>(&weights)) {
        throw IoError("receive", options.init_from.native(), EIO, rejection->reason);
      }
      source.load_weights(*std::get<std::shared_ptr<Snapshot>>(weights));
    } else if (file) {
      auto loaded = verifier.load(*file);
      if (const auto* const rejection = std::get_if<Rejection>(&loaded)) {
        throw IoError("receive", start.name, EIO, "rank 0 sent something else (" + rejection->reason + ")");
      }
      auto& [index, snapshot] = std::get<FileVerifier::Loaded>(loaded);
      start.step = index.step;
      start.record = run_record_of(index.attributes);
      start.attributes = std::move(index.attributes);
      start.snapshot = std::move(snapshot);
    }
    file.reset();
    resumed = join(start, std::move(resumed), began);
  } catch (const Error& error) {
    crew->tell(internal::kReady, failure_of(error));
    throw;
  } catch (const std::bad_alloc&) {
    crew->tell(internal::kReady, failure_of(OutOfMemoryError()));
    throw;
  }
  started_from = {verdict.value("durable", std::int64_t{-1}), start.name, clock.now()};
  return all_ready(std::move(resumed));
}

Resumed Checkpointer::State::join(const Start& start, Resumed resumed, SteadyTime began) {
  if (!start.fresh) {
    check(start);
    const auto differences = differences_to(start);
    const int rank = crew->rank();
    const bool has_own = internal::has_own_of(rank, start.snapshot->layout->tensors());
    source.load(*internal::share_of(rank, start.snapshot), options.overrides);
    if (!has_own) source.derive_own(rank);
    resumed.step = start.step;
    resumed.checkpoint = start.name;
    resumed.evaluation_due = start.record.evaluation_due;
    resumed.loss = start.record.loss;
    resumed.bit_exact = differences.empty();
    log_info("resuming from step {} as rank 0 does ({})", start.step, format_duration(clock.now() - began));
    loss_was_told = start.record.loss_told;
    loss = start.record.loss;
    evaluation_due = start.record.evaluation_due;
    measurements = Measurements(start.record.metrics);
  }
  verifier.stop_keeping();
  start_step = start.step;
  boundary_time = clock.now();
  book->open(start_step, boundary_time);
  phase = Phase::together;
  watch->begin();
  return resumed;
}

// Nobody trains before everybody can.
Resumed Checkpointer::State::all_ready(Resumed resumed) {
  crew->tell(internal::kReady, {{"bit_exact", resumed.bit_exact}, {"step", source.step()}});
  bool all_exact = true;
  for (int rank = 0; rank < crew->world_size(); ++rank) {
    if (rank == crew->rank()) continue;
    const json told = crew->hear(rank, internal::kReady, crew->companions.timeout());
    throw_if_failed(told, rank);
    all_exact = all_exact && told.value("bit_exact", false);
  }
  if (resumed.bit_exact && !all_exact) {
    log_warning("not bit-exact from here on, because another rank's environment differs: its log says how");
    resumed.bit_exact = false;
  }
  return resumed;
}

}  // namespace holdfast::inline v1
