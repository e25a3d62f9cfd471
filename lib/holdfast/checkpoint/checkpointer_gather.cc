// From several empty processes to one training state: rank 0 finds it, all ranks check whether they would go
// on from it, and rank 0 claims it. Who sees the volume reads the file there; if one does not, rank 0 sends
// it byte by byte. Each verifies every digest itself.
#include <algorithm>
#include <cerrno>
#include <exception>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"
#include "holdfast/format/reader.h"
#include "holdfast/ranks/ranked_state.h"
#include "holdfast/ranks/received_file.h"

namespace holdfast { inline namespace v1 {
namespace {

using nlohmann::json;

// Rank 0 may wait for its volume and read a large state; that it has died or hangs is noticed by the store.
constexpr Duration kVerdictWait = std::chrono::hours(1);
constexpr Duration kStartSlice = std::chrono::milliseconds(500);  // between two looks at the signals

json failure_of(const Error& error) {
  return {{"error", error.what()}, {"code", static_cast<int>(error.exit_code())}};
}

void throw_if_failed(const json& told, int rank) {
  if (!told.contains("error")) return;
  throw Error("rank " + std::to_string(rank) + ": " + told.value("error", std::string()),
              static_cast<ExitCode>(told.value("code", static_cast<int>(ExitCode::internal))));
}

bool all_see(const std::vector<bool>& sees) {
  return !sees.empty() && std::find(sees.begin(), sees.end(), false) == sees.end();
}

bool sees_it(const std::vector<bool>& sees, int rank) {
  return !sees.empty() && sees[static_cast<std::size_t>(rank)];
}

// Files with the same are the same in every byte.
std::string index_of(const File& file) {
  const auto index = read_index(file);
  const auto* const known = std::get_if<CheckpointIndex>(&index);
  return known != nullptr ? to_hex(known->digest) : "damaged";
}

}  // namespace

// Rank 0 may wait for its volume. A signal ends this wait as it ends that one.
json Checkpointer::State::hear_at_start(int rank, const char* name, Duration limit) {
  const SteadyTime end = Clock::real().now() + limit;
  while (true) {
    const SteadyTime asked = Clock::real().now();
    const Duration slice = std::clamp(Duration(end - asked), Duration::zero(), kStartSlice);
    try {
      return ranks->hear(rank, name, slice);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception&) {
      if (Clock::real().now() - asked < slice) throw;
    }
    const std::string who = "rank " + std::to_string(rank);
    if (outlook.must_stop()) {
      throw Error("told to stop (" + outlook.reason() + ") while waiting for " + who +
                      " to resume; nothing was begun",
                  static_cast<ExitCode>(options.notices.exit_code_interrupted));
    }
    if (Clock::real().now() >= end) {
      throw Error(who + " did not tell of '" + name + "' within " + format_duration(limit) +
                      "; the newest checkpoint stands: start all ranks again",
                  ExitCode::interrupted);
    }
  }
}

Resumed Checkpointer::State::lead() {
  RankChannel& channel = ranks->channel;
  record.world_size = ranks->world_size();
  Resumed resumed;
  std::unique_ptr<File> file;
  const auto tell_failure = [&](const Error& error) {
    ranks->tell(ranks->asked ? internal::kVerdict : internal::kCandidate, failure_of(error));
  };
  try {
    resumed = resume_alone();
    file = file_to_share(resumed);
  } catch (const Error& error) {
    tell_failure(error);
    throw;
  } catch (const std::bad_alloc&) {
    tell_failure(OutOfMemoryError());
    throw;
  }
  try {
    const bool in_run = !resumed.fresh && outside.empty();
    ranks->tell(internal::kVerdict, {{"attempt", record.attempt},
                                     {"fresh", resumed.fresh},
                                     {"checkpoint", resumed.checkpoint},
                                     {"durable", started_from.step},
                                     {"bytes", file ? file->size() : 0},
                                     {"in_run", in_run},
                                     {"index", in_run ? index_of(*file) : std::string()},
                                     {"shared_write", options.ranks.shared_write}});
    if (options.ranks.shared_write) find_ranks_on_volume();
    if (file && !(in_run && all_see(ranks->sees))) internal::send_file(channel, *file);
    return all_ready(std::move(resumed));
  } catch (const Error& error) {
    abandon(error);
    throw;
  }
}

// Rank 0, before it claims. All ranks check, read-only, whether they would go on from there: a claim ends the
// attempt that runs. Of the file they need no more than its head.
void Checkpointer::State::ask_others(const Selection& selection, const Start& start) {
  std::unique_ptr<File> file;
  if (!start.fresh)
    file = start.outside ? file_system.open_file(outside, OpenMode::read) : store->open(*selection.newest);
  if (!start.fresh && !file) {
    throw IoError("open", (options.directory / start.name).native(), ENOENT,
                  "the checkpoint vanished while it was read; is another program deleting files there?");
  }
  std::vector<std::byte> head;
  if (file) {
    const auto index = read_index(*file);
    if (const auto* const rejection = std::get_if<Rejection>(&index)) {
      throw IoError("read", start.name, EIO,
                    "it was whole a moment ago and now is not (" + rejection->reason + "); check the volume");
    }
    head.resize(std::get<CheckpointIndex>(index).user_block);
    file->read_at(head, 0);
  }
  ranks->asked = true;
  ranks->tell(internal::kCandidate, {{"bytes", file ? file->size() : 0}, {"head", head.size()}});
  if (file) ranks->channel.broadcast(head);
  for (int rank = 1; rank < ranks->world_size(); ++rank) {
    throw_if_failed(hear_at_start(rank, internal::kChecked, ranks->channel.timeout()), rank);
  }
}

void Checkpointer::State::answer_rank_0() {
  const json candidate = hear_at_start(0, internal::kCandidate, options.start.mount_wait + kVerdictWait);
  throw_if_failed(candidate, 0);
  std::vector<std::byte> head(candidate.value("head", std::size_t{0}));
  if (!head.empty()) ranks->channel.broadcast(head);
  try {
    require_sight();
    if (!head.empty()) check_head(std::move(head), candidate.value("bytes", std::uint64_t{0}));
    ranks->tell(internal::kChecked, json::object());
  } catch (const Error& error) {
    ranks->tell(internal::kChecked, failure_of(error));
    throw;
  } catch (const std::bad_alloc&) {
    ranks->tell(internal::kChecked, failure_of(OutOfMemoryError()));
    throw;
  }
}

void Checkpointer::State::check_head(std::vector<std::byte> head, std::uint64_t file_bytes) {
  const auto file = internal::head_of_file(std::move(head), file_bytes);
  const auto read = read_index(*file);
  if (const auto* const rejection = std::get_if<Rejection>(&read)) {
    throw IoError("receive", "the checkpoint's head", EIO,
                  "rank 0 sent something else (" + rejection->reason + ")");
  }
  const auto& index = std::get<CheckpointIndex>(read);
  std::vector<TensorSpec> tensors;
  for (const IndexedTensor& tensor : index.tensors) tensors.push_back(tensor.spec);
  source.check(internal::without_ranks(tensors), index.attributes, options.start.overrides);
}

// Rank 0 has verified it a moment ago, and nothing deletes it before the first commit.
std::unique_ptr<File> Checkpointer::State::file_to_share(const Resumed& resumed) {
  std::filesystem::path path = options.start.init_from;
  if (!resumed.fresh) {
    path = std::filesystem::path(resumed.checkpoint);
    if (outside.empty()) path = options.directory / path;
  }
  if (path.empty()) return nullptr;
  auto file = file_system.open_file(path, OpenMode::read);
  if (!file) throw IoError("open", path.native(), ENOENT, "it vanished while the ranks were starting");
  return file;
}

// The same in this rank's own view of the volume.
std::unique_ptr<File> Checkpointer::State::file_seen(const std::string& name) {
  const auto directory = file_system.open_directory(options.directory, false);
  auto file = directory ? directory->open(name, OpenMode::read) : nullptr;
  if (!file) {
    throw IoError("open", (options.directory / name).native(), ENOENT,
                  "rank 0 sees it; is it the same volume here?");
  }
  return file;
}

Resumed Checkpointer::State::follow() {
  const SteadyTime began = clock.now();
  RankChannel& channel = ranks->channel;
  record.world_size = ranks->world_size();
  answer_rank_0();
  const json verdict = hear_at_start(0, internal::kVerdict, options.start.mount_wait + kVerdictWait);
  throw_if_failed(verdict, 0);
  record.attempt = verdict.value("attempt", AttemptNumber{0});
  ranks->together = std::make_unique<SharedWriter>(ranks->guarded, record.attempt, clock);
  if (verdict.value("shared_write", false)) find_ranks_on_volume();

  Start start;
  start.fresh = verdict.value("fresh", true);
  start.name = verdict.value("checkpoint", std::string());
  const auto bytes = verdict.value("bytes", std::uint64_t{0});
  const bool in_run = verdict.value("in_run", false);
  const bool reads = in_run && sees_it(ranks->sees, ranks->rank());
  std::shared_ptr<Arena> received;
  if (bytes > 0 && !(in_run && all_see(ranks->sees))) {
    // Who reads for itself takes part in what is collective, and keeps nothing.
    received = internal::receive_file(channel, bytes, !reads);
  }
  Resumed resumed;
  resumed.fresh = start.fresh;
  resumed.loss = std::numeric_limits<double>::quiet_NaN();
  try {
    if (start.fresh && source.step() != 0) {
      throw UsageError("the training state stands at step " + std::to_string(source.step()) +
                       " before a fresh start; call resume() before the first update");
    }
    if (bytes > 0) {
      const auto file = reads ? file_seen(start.name) : internal::file_of(received);
      if (reads && index_of(*file) != verdict.value("index", std::string())) {
        throw IoError("read", (options.directory / start.name).native(), EIO,
                      "another file than rank 0 reads there; is it the same volume?");
      }
      load_as_follower(start, *file, std::move(received));
    }
    resumed = join(start, std::move(resumed), began);
  } catch (const Error& error) {
    ranks->tell(internal::kReady, failure_of(error));
    throw;
  } catch (const std::bad_alloc&) {
    ranks->tell(internal::kReady, failure_of(OutOfMemoryError()));
    throw;
  }
  started_from = {verdict.value("durable", std::int64_t{-1}), start.name, clock.now()};
  return all_ready(std::move(resumed));
}

// `received`: the file's bytes, which become the state's image; null: they are read from `file`.
void Checkpointer::State::load_as_follower(Start& start, const File& file, std::shared_ptr<Arena> received) {
  const char* const how = received ? "receive" : "read";
  if (start.fresh) {
    auto weights = weights_in(file);
    if (const auto* const rejection = std::get_if<Rejection>(&weights)) {
      throw IoError(how, options.start.init_from.native(), EIO, rejection->reason);
    }
    source.load_weights(*std::get<std::shared_ptr<Snapshot>>(weights));
    return;
  }
  auto loaded = received ? verifier.load_in(file, std::move(received)) : verifier.load(file);
  if (const auto* const rejection = std::get_if<Rejection>(&loaded)) {
    throw IoError(how, start.name, EIO,
                  (how == std::string_view("read") ? "damaged as this rank sees it ("
                                                   : "rank 0 sent something else (") +
                      rejection->reason + ")");
  }
  auto& [index, snapshot] = std::get<FileVerifier::Loaded>(loaded);
  start.step = index.step;
  start.record = run_record_of(index.attributes);
  start.attributes = std::move(index.attributes);
  start.snapshot = std::move(snapshot);
}

Resumed Checkpointer::State::join(const Start& start, Resumed resumed, SteadyTime began) {
  if (!start.fresh) {
    check(start);
    resumed.bit_exact = promise_bits(
        start, accepted_differences(start.attributes, source.attributes(), options.start.overrides));
    const int rank = ranks->rank();
    const bool has_own = internal::has_own_of(rank, start.snapshot->layout->tensors());
    source.load(*internal::share_of(rank, start.snapshot), options.start.overrides);
    if (!has_own) source.derive_own(rank);
    resumed.step = start.step;
    resumed.checkpoint = start.name;
    resumed.evaluation_due = start.record.evaluation_due;
    resumed.loss = start.record.loss.value_or(resumed.loss);
    log_info("resuming from step {} as rank 0 does ({})", start.step, format_duration(clock.now() - began));
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
  ranks->tell(internal::kReady, {{"bit_exact", resumed.bit_exact}, {"step", source.step()}});
  bool all_exact = true;
  for (int rank = 0; rank < ranks->world_size(); ++rank) {
    if (rank == ranks->rank()) continue;
    const json told = hear_at_start(rank, internal::kReady, ranks->channel.timeout());
    throw_if_failed(told, rank);
    all_exact = all_exact && told.value("bit_exact", false);
  }
  if (resumed.bit_exact && !all_exact) {
    log_warning(
        "not bit-exact from here on, because another rank's environment or options differ: its log says how");
    resumed.bit_exact = false;
  }
  return resumed;
}

}}  // namespace holdfast::v1
