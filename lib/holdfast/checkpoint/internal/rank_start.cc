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
#include "holdfast/checkpoint/internal/rank_peek.h"
#include "holdfast/format/reader.h"
#include "holdfast/ranks/ranked_state.h"
#include "holdfast/ranks/received_file.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

using nlohmann::json;

}  // namespace

void RankStart::lead() {
  telling_errors(
      [&] {
        // All ranks are asked right before the claim, which ends an attempt that still runs. A rank that
        // cannot resume must not cost that.
        engine_.start.claim(group_.world_size(),
                            [this](CheckpointStore& store, const Selection& found, const Start& candidate) {
                              ask_others(store, found, candidate);
                            });
        file_ = file_to_share();
      },
      [this](const Error& error) { group_.tell(asked_ ? kVerdict : kCandidate, failure_of(error)); });
}

void RankStart::let_others_load() {
  tell_verdict();
  share_volume(run_.options.ranks.shared_write);
  const bool all_read = in_run_directory() && group_.all_see();
  if (file_ && !all_read) send_file(group_.channel(), *file_);
  file_.reset();
  agree_on_bits();
}

void RankStart::follow() {
  answer_rank_0();
  const Verdict verdict = hear_verdict();
  // Before the state is loaded, because the head of every shared text names the attempt.
  run_.started.record.attempt = verdict.attempt;
  share_volume(verdict.shared_write);
  std::shared_ptr<Arena> received = receiver_.receive(verdict);
  telling_errors(
      [&] {
        run_.started = receiver_.load(verdict, std::move(received));
        engine_.start.begin();
      },
      [this](const Error& error) { group_.tell(kReady, failure_of(error)); });
  agree_on_bits();
}

// Collective.
void RankStart::share_volume(bool wanted) {
  group_.begin_sharing(run_.started.record.attempt, run_.clock);
  if (!wanted) return;
  rounds_.find_volume();
  if (group_.sharing() && !group_.leads()) sender_.begin_sharing();
}

void RankStart::ask_others(CheckpointStore& store, const Selection& selection, const Start& start) {
  std::unique_ptr<File> file;
  if (!start.fresh) {
    file = start.outside ? run_.file_system.open_file(finder().outside(), OpenMode::read)
                         : store.open(*selection.newest);
  }
  if (!start.fresh && !file) {
    throw IoError("open", (run_.options.directory / start.name).native(), ENOENT,
                  "the checkpoint vanished while it was read; is another program deleting files there?");
  }
  // The head alone: its index has all that another rank can refuse.
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
  // From here on the others wait for the verdict, and errors are sent under its name.
  asked_ = true;
  group_.tell(kCandidate, {{"bytes", file ? file->size() : 0}, {"head", head.size()}});
  if (file) group_.channel().broadcast(head);
  for (int rank = 1; rank < group_.world_size(); ++rank) {
    throw_if_failed(hear_at_start(run_, group_, rank, kChecked, group_.channel().timeout()), rank);
  }
}

// The file that all load; null: none is needed. Nothing deletes it before the first commit.
std::unique_ptr<File> RankStart::file_to_share() const {
  const Resumed& resumed = run_.started.resumed;
  std::filesystem::path path = run_.options.start.init_from;
  if (!resumed.fresh) {
    path = std::filesystem::path(resumed.checkpoint);
    if (finder().outside().empty()) path = run_.options.directory / path;
  }
  if (path.empty()) return nullptr;
  auto file = run_.file_system.open_file(path, OpenMode::read);
  if (!file) throw IoError("open", path.native(), ENOENT, "it vanished while the ranks were starting");
  return file;
}

bool RankStart::in_run_directory() const { return !run_.started.resumed.fresh && finder().outside().empty(); }

void RankStart::tell_verdict() {
  const StartedRun& started = run_.started;
  group_.tell(kVerdict, {{"attempt", started.record.attempt},
                         {"fresh", started.resumed.fresh},
                         {"branch", started.resumed.branch},
                         {"checkpoint", started.resumed.checkpoint},
                         {"durable", started.durable.step},
                         {"bytes", file_ ? file_->size() : 0},
                         {"index", in_run_directory() ? index_digest(*file_) : std::string()},
                         {"shared_write", run_.options.ranks.shared_write}});
}

void RankStart::answer_rank_0() {
  const Duration limit = run_.options.start.mount_wait + kStartWait;
  const json candidate = hear_at_start(run_, group_, 0, kCandidate, limit);
  throw_if_failed(candidate, 0);
  std::vector<std::byte> head(candidate.value("head", std::size_t{0}));
  if (!head.empty()) group_.channel().broadcast(head);
  telling_errors(
      [&] {
        // A required source must see on every rank. A blind rank refuses here, before rank 0 claims.
        engine_.start.wait().await_sight();
        if (!head.empty()) receiver_.check_head(std::move(head), candidate.value("bytes", std::uint64_t{0}));
        group_.tell(kChecked, json::object());
      },
      [&](const Error& error) { group_.tell(kChecked, failure_of(error)); });
}

Verdict RankStart::hear_verdict() {
  const json told = hear_at_start(run_, group_, 0, kVerdict, run_.options.start.mount_wait + kStartWait);
  throw_if_failed(told, 0);
  return {.attempt = told.value("attempt", AttemptNumber{0}),
          .fresh = told.value("fresh", true),
          .branch = told.value("branch", false),
          .checkpoint = told.value("checkpoint", std::string()),
          .durable = told.value("durable", std::int64_t{-1}),
          .bytes = told.value("bytes", std::uint64_t{0}),
          .index = told.value("index", std::string()),
          .shared_write = told.value("shared_write", false)};
}

// Waits for all: no rank trains before every rank can.
void RankStart::agree_on_bits() {
  bool& bit_exact = run_.started.resumed.bit_exact;
  const std::string own = own_tensors(run_.source);
  group_.tell(kReady, {{"bit_exact", bit_exact}, {"step", run_.step()}, {"own", own}});
  bool all_exact = true;
  for (int rank = 0; rank < group_.world_size(); ++rank) {
    if (rank == group_.rank()) continue;
    const json told = hear_at_start(run_, group_, rank, kReady, group_.channel().timeout());
    throw_if_failed(told, rank);
    // Now, and not at the first save: all ranks read the same texts, so all of them end here.
    if (const std::string theirs = told.value("own", own); theirs != own) {
      throw UsageError("rank " + std::to_string(rank) + " has other tensors of its own (" + theirs +
                       ") than rank " + std::to_string(group_.rank()) + " (" + own +
                       "): every rank needs the same random streams, on as many GPUs");
    }
    all_exact = all_exact && told.value("bit_exact", false);
  }
  if (bit_exact && !all_exact) {
    log_warning(
        "not bit-exact from here on, because another rank's environment or options differ: its log says how");
  }
  bit_exact = bit_exact && all_exact;
}

}}}  // namespace holdfast::v0_2::internal
