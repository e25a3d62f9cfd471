#include "holdfast/checkpoint/internal/rank_start.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/format/reader.h"
#include "holdfast/ranks/ranked_state.h"
#include "holdfast/ranks/received_file.h"

namespace holdfast { inline namespace v1 { namespace internal {
namespace {

using nlohmann::json;

// Rank 0 may wait for its volume and read a large state; that it has died or hangs is noticed by the store.
constexpr Duration kVerdictWait = std::chrono::hours(1);
constexpr Duration kSlice = std::chrono::milliseconds(500);  // between two looks at the signals

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

// Files with the same are the same in every byte.
std::string index_of(const File& file) {
  const auto index = read_index(file);
  const auto* const known = std::get_if<CheckpointIndex>(&index);
  return known != nullptr ? to_hex(known->digest) : "damaged";
}

}  // namespace

// Rank 0 may wait for its volume. A signal ends this wait as it ends that one.
json RankStart::hear(int rank, const char* name, Duration limit) {
  const SteadyTime end = Clock::real().now() + limit;
  while (true) {
    const SteadyTime asked = Clock::real().now();
    const Duration slice = std::clamp(Duration(end - asked), Duration::zero(), kSlice);
    try {
      return ranks_.hear(rank, name, slice);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception&) {
      if (Clock::real().now() - asked < slice) throw;
    }
    const std::string who = "rank " + std::to_string(rank);
    if (parts_.outlook.must_stop()) {
      throw Error("told to stop (" + parts_.outlook.reason() + ") while waiting for " + who +
                      " to resume; nothing was begun",
                  static_cast<ExitCode>(parts_.options.notices.exit_code_interrupted));
    }
    if (Clock::real().now() >= end) {
      throw Error(who + " did not tell of '" + name + "' within " + format_duration(limit) +
                      "; the newest checkpoint stands: start all ranks again",
                  ExitCode::interrupted);
    }
  }
}

void RankStart::ask_others(CheckpointStore& store, const Selection& selection, const Start& start) {
  std::unique_ptr<File> file;
  if (!start.fresh) {
    file = start.outside ? parts_.file_system.open_file(finder_.outside(), OpenMode::read)
                         : store.open(*selection.newest);
  }
  if (!start.fresh && !file) {
    throw IoError("open", (parts_.options.directory / start.name).native(), ENOENT,
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
  ranks_.asked = true;
  ranks_.tell(kCandidate, {{"bytes", file ? file->size() : 0}, {"head", head.size()}});
  if (file) ranks_.channel.broadcast(head);
  for (int rank = 1; rank < ranks_.world_size(); ++rank) {
    throw_if_failed(hear(rank, kChecked, ranks_.channel.timeout()), rank);
  }
}

void RankStart::tell_failure(const Error& error) {
  ranks_.tell(ranks_.asked ? kVerdict : kCandidate, failure_of(error));
}

std::unique_ptr<File> RankStart::file_to_share(const Resumed& resumed) const {
  std::filesystem::path path = parts_.options.start.init_from;
  if (!resumed.fresh) {
    path = std::filesystem::path(resumed.checkpoint);
    if (finder_.outside().empty()) path = parts_.options.directory / path;
  }
  if (path.empty()) return nullptr;
  auto file = parts_.file_system.open_file(path, OpenMode::read);
  if (!file) throw IoError("open", path.native(), ENOENT, "it vanished while the ranks were starting");
  return file;
}

void RankStart::tell_verdict(const StartedRun& run, const File* file) {
  const bool in_run = !run.resumed.fresh && finder_.outside().empty();
  ranks_.tell(kVerdict, {{"attempt", run.record.attempt},
                         {"fresh", run.resumed.fresh},
                         {"checkpoint", run.resumed.checkpoint},
                         {"durable", run.durable.step},
                         {"bytes", file != nullptr ? file->size() : 0},
                         {"index", in_run ? index_of(*file) : std::string()},
                         {"shared_write", parts_.options.ranks.shared_write}});
}

void RankStart::send(const StartedRun& run, const File* file) {
  const bool in_run = !run.resumed.fresh && finder_.outside().empty();
  if (file != nullptr && !(in_run && all_see(ranks_.sees))) send_file(ranks_.channel, *file);
}

void RankStart::answer_rank_0() {
  const Duration limit = parts_.options.start.mount_wait + kVerdictWait;
  const json candidate = hear(0, kCandidate, limit);
  throw_if_failed(candidate, 0);
  std::vector<std::byte> head(candidate.value("head", std::size_t{0}));
  if (!head.empty()) ranks_.channel.broadcast(head);
  telling_errors(
      [&] {
        finder_.await_sight();
        if (!head.empty()) check_head(std::move(head), candidate.value("bytes", std::uint64_t{0}));
        ranks_.tell(kChecked, json::object());
      },
      [&](const Error& error) { ranks_.tell(kChecked, failure_of(error)); });
}

void RankStart::check_head(std::vector<std::byte> head, std::uint64_t file_bytes) {
  const auto file = head_of_file(std::move(head), file_bytes);
  const auto read = read_index(*file);
  if (const auto* const rejection = std::get_if<Rejection>(&read)) {
    throw IoError("receive", "the checkpoint's head", EIO,
                  "rank 0 sent something else (" + rejection->reason + ")");
  }
  const auto& index = std::get<CheckpointIndex>(read);
  std::vector<TensorSpec> tensors;
  for (const IndexedTensor& tensor : index.tensors) tensors.push_back(tensor.spec);
  finder_.check(std::move(tensors), index.attributes);
}

Verdict RankStart::hear_verdict() {
  const json told = hear(0, kVerdict, parts_.options.start.mount_wait + kVerdictWait);
  throw_if_failed(told, 0);
  return {.attempt = told.value("attempt", AttemptNumber{0}),
          .fresh = told.value("fresh", true),
          .checkpoint = told.value("checkpoint", std::string()),
          .durable = told.value("durable", std::int64_t{-1}),
          .bytes = told.value("bytes", std::uint64_t{0}),
          .index = told.value("index", std::string()),
          .shared_write = told.value("shared_write", false)};
}

// The same in this rank's own view of the volume.
std::unique_ptr<File> RankStart::file_seen(const std::string& name) const {
  const auto directory = parts_.file_system.open_directory(parts_.options.directory, false);
  auto file = directory ? directory->open(name, OpenMode::read) : nullptr;
  if (!file) {
    throw IoError("open", (parts_.options.directory / name).native(), ENOENT,
                  "rank 0 sees it; is it the same volume here?");
  }
  return file;
}

// Rather than have it sent.
bool RankStart::reads(const Verdict& verdict) const {
  return !verdict.index.empty() && !ranks_.sees.empty() &&
         ranks_.sees[static_cast<std::size_t>(ranks_.rank())];
}

std::shared_ptr<Arena> RankStart::receive(const Verdict& verdict) {
  const bool in_run = !verdict.index.empty();
  if (verdict.bytes == 0 || (in_run && all_see(ranks_.sees))) return nullptr;
  // Who reads for itself takes part in what is collective, and keeps nothing.
  return receive_file(ranks_.channel, verdict.bytes, !reads(verdict));
}

StartedRun RankStart::load(const Verdict& verdict, std::shared_ptr<Arena> received) {
  StartedRun run{.began = parts_.clock.now()};
  run.record.world_size = ranks_.world_size();
  run.record.attempt = verdict.attempt;
  run.resumed.fresh = verdict.fresh;
  run.resumed.loss = std::numeric_limits<double>::quiet_NaN();
  run.durable = {verdict.durable, verdict.checkpoint, parts_.clock.now()};

  Start start;
  start.fresh = verdict.fresh;
  start.name = verdict.checkpoint;
  if (start.fresh) finder_.check_untrained();
  if (verdict.bytes > 0) {
    const auto file = reads(verdict) ? file_seen(start.name) : file_of(received);
    if (reads(verdict) && index_of(*file) != verdict.index) {
      throw IoError("read", (parts_.options.directory / start.name).native(), EIO,
                    "another file than rank 0 reads there; is it the same volume?");
    }
    load_from(start, *file, std::move(received));
  }
  if (!start.fresh) {
    finder_.check(start);
    load_state(parts_, start, ranks_.rank(), run);
    log_info("resuming from step {} as rank 0 does ({})", start.step,
             format_duration(parts_.clock.now() - run.began));
  }
  parts_.verifier.stop_keeping();
  return run;
}

void RankStart::tell_not_ready(const Error& error) { ranks_.tell(kReady, failure_of(error)); }

// `received`: the file's bytes, which become the state's image; null: they are read from `file`.
void RankStart::load_from(Start& start, const File& file, std::shared_ptr<Arena> received) {
  const char* const how = received ? "receive" : "read";
  if (start.fresh) {
    auto weights = finder_.weights_in(file);
    if (const auto* const rejection = std::get_if<Rejection>(&weights)) {
      throw IoError(how, parts_.options.start.init_from.native(), EIO, rejection->reason);
    }
    parts_.source.load_weights(*std::get<std::shared_ptr<Snapshot>>(weights));
    return;
  }
  auto loaded = received ? parts_.verifier.load_in(file, std::move(received)) : parts_.verifier.load(file);
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

bool RankStart::all_ready(bool bit_exact) {
  ranks_.tell(kReady, {{"bit_exact", bit_exact}, {"step", parts_.source.step()}});
  bool all_exact = true;
  for (int rank = 0; rank < ranks_.world_size(); ++rank) {
    if (rank == ranks_.rank()) continue;
    const json told = hear(rank, kReady, ranks_.channel.timeout());
    throw_if_failed(told, rank);
    all_exact = all_exact && told.value("bit_exact", false);
  }
  if (bit_exact && !all_exact) {
    log_warning(
        "not bit-exact from here on, because another rank's environment or options differ: its log says how");
  }
  return all_exact;
}

}}}  // namespace holdfast::v1::internal
