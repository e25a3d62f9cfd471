#include "holdfast/checkpoint/internal/rank_partners.h"

#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/checkpoint/internal/boundary_shelf.h"
#include "holdfast/ranks/ranked_state.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Ranks send their own state at the same boundary, so it is at most a step away.
constexpr Duration kOwnWait = std::chrono::seconds(30);

}  // namespace

void RankPartners::bring_together() {
  const Waiting waiting(run_.time);
  run_.source.bring_together();
  run_.outlook.add_agreement(waiting.so_far());
}

std::string RankPartners::next_evaluation() {
  const std::int64_t step = run_.step();
  // A second evaluation at one step is another boundary in the ranks' messages.
  const bool another = std::exchange(evaluated_, step) == step;
  evaluations_ = another ? evaluations_ + 1 : 0;
  return boundary_text(step, evaluations_);
}

void RankPartners::heard(const Notice& notice) noexcept {
  // By the signs of life and not by a vote: the machine may stand still before the next vote.
  if (notice.stands_still) group_.channel().expect_silence(*notice.stands_still);
  if (notice.kind == NoticeKind::thawed) group_.channel().expect_silence(Duration::zero());
  if (run_.monitor.pending()) group_.channel().call(true);
}

void RankPartners::add_values(Measurements& measurements) {
  for (const auto& [name, value] : best_) measurements.add(name, run_.step(), value);
}

void RankPartners::join(WriteRequest& request, Staged& staged) {
  best_.clear();
  if (!staged.shares) request.complete = bring_own_of_others(*request.snapshot);
  request.others = rounds_.led(request, staged.shares);
}

void RankPartners::restore_limit() noexcept {
  if (!group_.leads() && !group_.end() && !run_.outlook.must_stop()) group_.restore_limit();
}

// The image has room for it behind rank 0's own copy, so both can be filled at the same time.
std::function<void()> RankPartners::bring_own_of_others(const Snapshot& snapshot) const {
  if (own_bytes(run_.source, snapshot.layout->tensors()) == 0) return {};
  return [&group = group_, &clock = run_.clock, &source = run_.source, layout = snapshot.layout,
          arena = snapshot.arena, step = snapshot.step] {
    for (int rank = 1; rank < group.world_size(); ++rank) {
      const std::string own =
          hear_patiently(group.guarded(), clock, rank, own_text(step), kOwnWait, &group.patience());
      // The first byte says what follows: the bytes, or why there are none.
      if (!own.starts_with(kOwnBytes)) {
        throw Error("rank " + std::to_string(rank) +
                    " could not copy its random numbers: " + own.substr(own.empty() ? 0 : 1));
      }
      group.before_parting(
          [&] { put_own_of(rank, std::string_view(own).substr(1), source, *layout, arena->bytes()); });
    }
  };
}

std::string RankPartners::lacking(const ImageLayout& layout) const {
  return own_bytes(run_.source, layout.tensors()) > 0 ? boundary_text(evaluated_, evaluations_) : "";
}

bool RankPartners::complete(BoundaryShelf& shelf) noexcept {
  try {
    const std::optional<std::string> name = shelf.lacks();
    if (!name) return false;
    if (name->empty()) return true;
    std::vector<std::string> own;
    for (int rank = 1; rank < group_.world_size(); ++rank) {
      // Without waiting: the next look asks again.
      own.push_back(group_.guarded().hear(rank, *name, Duration::zero()));
    }
    return shelf.complete(*name, [&](const Snapshot& image) {
      for (int rank = 1; rank < group_.world_size(); ++rank) {
        put_own_of(rank, own[static_cast<std::size_t>(rank - 1)], run_.source, *image.layout,
                   image.arena->bytes());
      }
    });
  } catch (const std::exception&) {  // the text has not arrived, or never will
    return false;
  }
}

// The others wait for the outcome, and answer instead.
std::string RankPartners::told_to_stop() noexcept {
  std::string why;
  try {
    group_.tell(kOutcome, {{"asks", true}});
    asked_ = true;
    for (int rank = 1; rank < group_.world_size(); ++rank) {
      const bool told = group_.hear(rank, kToldToStop, kOwnWait).value("told", false);
      if (told && why.empty()) why = "rank " + std::to_string(rank) + " was told to stop";
    }
  } catch (const std::exception& error) {
    log_debug("not all ranks told whether they were told to stop: {}", what_of(error));
  }
  return why;
}

std::shared_ptr<Snapshot> RankPartners::part_of(std::shared_ptr<Snapshot> whole) const {
  return share_of(group_.rank(), whole);
}

}}}  // namespace holdfast::v0_2::internal
