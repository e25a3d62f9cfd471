#include "holdfast/checkpoint/internal/start/rank_start.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/log.h"
#include "holdfast/base/name_list.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/start/rank_options.h"
#include "holdfast/checkpoint/internal/start/rank_peek.h"
#include "holdfast/format/reader.h"
#include "holdfast/ranks/ranked_state.h"
#include "holdfast/ranks/received_file.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

using nlohmann::json;

constexpr char kStandsBy[] = "stands_by";  // rank 0 waits for the run, and the ranks begin a new round
// How often a rank that stands by looks at its signals, and rank 0 at who of the others has to end.
constexpr Duration kLookWhileStandingBy = std::chrono::milliseconds(250);
constexpr Duration kLookWhetherGone = std::chrono::milliseconds(10);
constexpr Duration kToEndTogether = std::chrono::seconds(3);
constexpr std::size_t kShownRanks = 8;

// Ranks whose data sources deliver the same samples: a forgotten shard, or the rank on its host in place of
// the rank. No error, because ranks that compute one model in parts read the same.
class SameData {
 public:
  void add(const json& told, int rank) {
    if (!told.contains("reads")) return;
    const auto [first, is_new] = readers_.emplace(told["reads"].dump(), rank);
    if (!is_new)
      same_.push_back("rank " + std::to_string(rank) + " those of rank " + std::to_string(first->second));
  }
  void warn() const {
    if (same_.empty()) return;
    log_warning(
        "ranks train on the same samples: {}. Give each rank's Loader or EpochOrder "
        ".shard = {{rank, world}}, unless these ranks compute one model in parts",
        name_list(same_, kShownRanks));
  }

 private:
  std::map<std::string, int> readers_;  // of each part of the batches
  std::vector<std::string> same_;
};

}  // namespace

void RankStart::lead() {
  engine_.start.standby().wait_with(
      {.stand_by = [this] { stand_by(); }, .one_ends = [this] { return one_ends(); }});
  telling_errors(
      [&] {
        // All ranks are asked right before the claim, which ends an attempt that still runs. A rank that
        // cannot resume must not cost that.
        engine_.start.claim(group_.world_size(),
                            [this](CheckpointStore& store, const Selection& found, const Start& candidate) {
                              ask_others(store, found, candidate);
                            });
      },
      [this](const Error& error) {
        group_.tell(in_round(asked_ ? kVerdict : kCandidate).c_str(), failure_of(error));
        if (round_ > 0) let_others_leave();
      });
}

// A standby may end as complete. A rank that found no store would not say so.
void RankStart::let_others_leave() {
  Clock& clock = Clock::real();
  const SteadyTime end = clock.now() + kToEndTogether;
  for (int rank = 1; rank < group_.world_size(); ++rank) {
    while (clock.now() < end && !group_.channel().has_left(rank)) clock.sleep_for(kLookWhetherGone);
  }
}

// Each name is told once, and a standby that has lost a claim begins anew.
std::string RankStart::in_round(const char* name) const {
  return round_ == 0 ? name : name + (" " + std::to_string(round_));
}

// Told, and not learned from the variable: a launcher may keep that from the other ranks.
void RankStart::stand_by() {
  group_.tell(in_round(asked_ ? kVerdict : kCandidate).c_str(), {{kStandsBy, true}});
  ++round_;
  asked_ = false;
}

// Rank 0, while it stands by.
bool RankStart::one_ends() {
  group_.channel().require_all();
  const bool called = group_.channel().called();
  const SteadyTime now = Clock::real().now();
  if (called && now >= look_at_) {
    look_at_ = now + kLookWhileStandingBy;
    for (int rank = 1; rank < group_.world_size(); ++rank) {
      const auto told = group_.hear_within(rank, in_round(kChecked).c_str(), Duration::zero());
      if (told) throw_if_failed(*told, rank);
    }
  }
  // The notice itself is in the other rank's log.
  if (called && !one_ends_) {
    log_info(
        "the end of another rank's machine is announced: until it is withdrawn, this standby claims nothing");
  }
  one_ends_ = called;
  return called;
}

// Without a limit: rank 0 may stand by for days. If this rank has to end, all ranks do.
json RankStart::stand_by_with_rank_0() {
  RankChannel& channel = group_.channel();
  const std::string name = in_round(kCandidate);
  const auto end_all = [&](const Error& error) {
    group_.tell(in_round(kChecked).c_str(), failure_of(error));
    channel.call(true);
    group_.hear_within(0, name.c_str(), kToEndTogether);  // rank 0 has heard it, and ends as well
  };
  // Now, and not when the holder is gone.
  telling_errors([&] { engine_.start.wait().await_sight(); }, end_all);
  for (;;) {
    if (auto told = group_.hear_within(0, name.c_str(), kLookWhileStandingBy)) return *std::move(told);
    channel.require_all();
    if (!run_.start_must_end()) {
      channel.call(run_.monitor.deadline().has_value());
      continue;
    }
    const Error stop("interrupted (" + run_.monitor.reason() + ") while standing by; nothing was claimed",
                     static_cast<ExitCode>(run_.options.notices.exit_code_interrupted));
    end_all(stop);
    throw stop;
  }
}

void RankStart::let_others_load() {
  const Verdict told = telling_errors(
      [&] {
        file_ = file_to_share();
        return verdict();
      },
      [this](const Error& error) { group_.tell(in_round(kVerdict).c_str(), failure_of(error)); });
  group_.tell(in_round(kVerdict).c_str(), told);
  engine_.others.begin_sharing(run_.options.ranks.shared_write);
  const bool offered = told.image.why_not.empty();
  if (file_ && plan_of(told, group_).sends()) {
    // From memory, where it is: so the volume is read once.
    send_file(group_.channel(), offered ? *file_of(run_.started.image) : *file_);
  }
  file_.reset();
  agree_on_bits();
  // Every rank has loaded it.
  run_.started.image.reset();
}

void RankStart::follow() {
  const Duration limit = run_.options.start.mount_wait + kStartWait;
  json told = hear_at_start(run_, group_, 0, kCandidate, limit);
  for (;;) {
    // While it stands by; also after a claim that another standby has won.
    for (; told.contains(kStandsBy); told = stand_by_with_rank_0()) ++round_;
    answer(told);
    told = hear_at_start(run_, group_, 0, in_round(kVerdict).c_str(), limit);
    if (!told.contains(kStandsBy)) break;
  }
  throw_if_failed(told, 0);
  const auto verdict = told.get<Verdict>();
  // Before the state is loaded, because the head of every shared text names the attempt.
  run_.started.record.attempt = verdict.attempt;
  engine_.others.begin_sharing(verdict.shared_write);
  std::shared_ptr<Arena> received = receiver_.receive(verdict);
  telling_errors(
      [&] {
        run_.started = receiver_.load(verdict, std::move(received));
        engine_.start.begin();
      },
      [this](const Error& error) { group_.tell(kReady, failure_of(error)); });
  agree_on_bits();
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
  // The head alone: its index has all that another rank can refuse. A fresh start has rank 0's options.
  std::vector<std::byte> head;
  if (file) {
    const auto index = read_index(*file);
    if (const auto* const rejection = std::get_if<Rejection>(&index)) {
      throw IoError("read", start.name, EIO,
                    "it was whole a moment ago and now is not (" + rejection->reason + "); check the volume");
    }
    head.resize(std::get<CheckpointIndex>(index).user_block);
    file->read_at(head, 0);
  } else {
    const std::string options = options_text(run_.source);
    const auto bytes = std::as_bytes(std::span(options));
    head.assign(bytes.begin(), bytes.end());
  }
  // From here on the others wait for the verdict, and errors are sent under its name.
  asked_ = true;
  const OfferedImage image = start.snapshot ? place_of(start.snapshot->arena) : OfferedImage();
  if (start.snapshot && !image.why_not.empty()) {
    log_warning("each rank reads the checkpoint itself, because rank 0 cannot share its memory: {}",
                image.why_not);
  }
  group_.tell(in_round(kCandidate).c_str(),
              {{"bytes", file ? file->size() : 0}, {"head", head.size()}, {"image", image}});
  group_.channel().broadcast(head);
  host_names_ = {own_host()};
  hosts_ = {0};
  for (int rank = 1; rank < group_.world_size(); ++rank) {
    const json told =
        hear_at_start(run_, group_, rank, in_round(kChecked).c_str(), group_.channel().timeout());
    throw_if_failed(told, rank);
    learn_host(rank, told, image.why_not.empty());
  }
}

// A rank of this host that cannot map rank 0's image is a host of its own.
void RankStart::learn_host(int rank, const json& told, bool image) {
  const std::string host = told.value("host", std::string());
  const std::string why_not = told.value("why_not", std::string());
  const auto first = std::find(host_names_.begin(), host_names_.end(), host) - host_names_.begin();
  if (image && first == 0 && !why_not.empty()) {
    log_info("rank {} does not take the checkpoint from rank 0's memory: {}", rank, why_not);
  } else if (image && first != 0 && same_machine(host, host_names_.front())) {
    log_info(
        "rank {} does not take the checkpoint from rank 0's memory: on the same machine it runs in another "
        "PID namespace (a container) or as another user",
        rank);
  }
  host_names_.push_back(host);
  hosts_.push_back(first == 0 && !why_not.empty() ? rank : static_cast<int>(first));
}

// The file that this rank has loaded, for all; null: none is needed. Nothing deletes a checkpoint of the run
// before the first commit, but other programs may replace other files.
std::unique_ptr<File> RankStart::file_to_share() const {
  const Resumed& resumed = run_.started.resumed;
  if (resumed.fresh) return finder().take_weights();
  std::filesystem::path path(resumed.checkpoint);
  if (finder().outside().empty()) path = run_.options.directory / path;
  auto file = run_.file_system.open_file(path, OpenMode::read);
  if (!file) throw IoError("open", path.native(), ENOENT, "it vanished while the ranks were starting");
  if (index_digest(*file) != to_hex(run_.started.index)) {
    throw IoError("read", path.native(), EIO, "it was replaced while the ranks were starting");
  }
  return file;
}

bool RankStart::in_run_directory() const { return !run_.started.resumed.fresh && finder().outside().empty(); }

Verdict RankStart::verdict() const {
  const StartedRun& started = run_.started;
  Verdict verdict{.attempt = started.record.attempt,
                  .fresh = started.resumed.fresh,
                  .branch = started.resumed.branch,
                  .checkpoint = started.resumed.checkpoint,
                  .durable = started.durable.step,
                  .bytes = file_ ? file_->size() : 0,
                  .index = in_run_directory() ? index_digest(*file_) : std::string(),
                  .shared_write = run_.options.ranks.shared_write,
                  .hosts = hosts_,
                  .image = {}};
  if (started.image) verdict.image = offer_image(started.image, started.index, *file_);
  return verdict;
}

void RankStart::answer(const json& candidate) {
  throw_if_failed(candidate, 0);
  std::vector<std::byte> head(candidate.value("head", std::size_t{0}));
  group_.channel().broadcast(head);
  const auto bytes = candidate.value("bytes", std::uint64_t{0});
  telling_errors(
      [&] {
        // A required source must see on every rank. A blind rank refuses here, before rank 0 claims.
        engine_.start.wait().await_sight();
        if (bytes > 0) {
          receiver_.check_head(std::move(head), bytes);
        } else {
          const std::string_view options(reinterpret_cast<const char*>(head.data()), head.size());
          check_options(run_.source, group_.rank(), options, run_.options.start.overrides);
        }
        // Whether it can be mapped, before rank 0 counts on it.
        const auto image = candidate.value("image", OfferedImage());
        const std::string why_not = map_image(image, bytes).why_not;
        group_.tell(in_round(kChecked).c_str(), {{"host", own_host()}, {"why_not", why_not}});
      },
      [&](const Error& error) { group_.tell(in_round(kChecked).c_str(), failure_of(error)); });
}

// Waits for all: no rank trains before every rank can.
void RankStart::agree_on_bits() {
  bool& bit_exact = run_.started.resumed.bit_exact;
  const std::string own = own_tensors(run_.source);
  const std::string& weights = finder().weights_loaded();
  const std::optional<Shard> reads = run_.source.traits().shard;
  json ready{{"bit_exact", bit_exact}, {"step", run_.step()}, {"own", own}, {"weights", weights}};
  if (reads) ready["reads"] = {reads->rank, reads->world};
  group_.tell(kReady, ready);
  SameData same_data;
  same_data.add(ready, group_.rank());
  bool all_exact = true;
  for (int rank = 0; rank < group_.world_size(); ++rank) {
    if (rank == group_.rank()) continue;
    const json told = hear_at_start(run_, group_, rank, kReady, kStartWait);  // it may read a large state
    throw_if_failed(told, rank);
    // Now, and not at the first save: all ranks read the same texts, so all of them end here.
    if (const std::string theirs = told.value("own", own); theirs != own) {
      throw UsageError("rank " + std::to_string(rank) + " has other tensors of its own (" + theirs +
                       ") than rank " + std::to_string(group_.rank()) + " (" + own +
                       "): every rank needs the same random streams, on as many GPUs");
    }
    if (told.value("weights", weights) != weights) {
      throw Error("rank " + std::to_string(rank) + " has loaded other weights than rank " +
                      std::to_string(group_.rank()) + ": " + run_.options.start.init_from.native() +
                      " was written while the ranks were starting; start all ranks again",
                  ExitCode::interrupted);
    }
    all_exact = all_exact && told.value("bit_exact", false);
    same_data.add(told, rank);
  }
  if (group_.leads()) same_data.warn();
  if (bit_exact && !all_exact) {
    log_warning(
        "not bit-exact from here on, because another rank's environment or options differ: its log says how");
  }
  bit_exact = bit_exact && all_exact;
}

}}}  // namespace holdfast::v0_2::internal
