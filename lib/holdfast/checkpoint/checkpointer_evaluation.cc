// An evaluation of several ranks. What is the same on all of them rank 0 has an image of from the beginning,
// and each of the others tells it what is its own then. So rank 0 needs nobody to commit that boundary when
// an end is announced to any rank (checkpointer_notice.cc): the others are inside the program's code, and may
// wait there for each other.
//
// Ranks need not come at the same time. One that does not come, or evaluates at another step, has told
// nothing, and rank 0 commits nothing until that is over. Texts are counted for each step, so that an image
// gets what belongs to it.
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"
#include "holdfast/ranks/ranked_state.h"

namespace holdfast { inline namespace v1 {
namespace {

// Rank 0 may still be in the evaluation before.
constexpr std::size_t kStillWanted = 2;

}  // namespace

void Checkpointer::State::enter_together() {
  const std::int64_t step = source.step();
  const bool another = std::exchange(ranks->evaluated, step) == step;
  ranks->evaluations = another ? ranks->evaluations + 1 : 0;
  // A copy that others have to take part in is none of rank 0's alone.
  if (source.needs_others() || disturbed || !why_torn().empty()) return;
  const std::string name = internal::boundary_text(step, ranks->evaluations);
  if (!ranks->leads()) return tell_boundary(name);
  if (covered()) return;
  try {
    boundary = image_of_boundary();
    put_on_shelf(internal::own_bytes(source, boundary.layout->tensors()) > 0 ? name : "");
  } catch (...) {
    boundary = {};
    staging_failed(nullptr);
  }
  watch->wake({});
}

// Without it, nothing is committed before the evaluation is over.
void Checkpointer::State::tell_boundary(const std::string& name) noexcept {
  try {
    const std::string own = internal::own_of(source);
    if (own.empty()) return;
    ranks->channel.tell(name, own);
    ranks->told_boundaries.push_back(name);
    if (ranks->told_boundaries.size() <= kStillWanted) return;
    ranks->channel.forget(ranks->told_boundaries.front());
    ranks->told_boundaries.erase(ranks->told_boundaries.begin());
  } catch (const std::exception& error) {
    log_debug("rank 0 could not be told what is this rank's own in an evaluation: {}", what_of(error));
  }
}

bool Checkpointer::State::bring_own_to_shelf() {
  std::string name;
  {
    const std::lock_guard lock(shelf.mutex);
    if (!shelf.image) return false;
    if (shelf.own_text.empty()) return true;
    name = shelf.own_text;
  }
  std::vector<std::string> own;
  try {
    for (int rank = 1; rank < ranks->world_size(); ++rank) {
      own.push_back(ranks->guarded.hear(rank, name, Duration::zero()));
    }
  } catch (const std::exception&) {  // it has not come so far, or never will
    return false;
  }
  const std::lock_guard lock(shelf.mutex);
  if (shelf.own_text != name) return false;  // the evaluation is over
  const Snapshot& image = *shelf.image.snapshot;
  for (int rank = 1; rank < ranks->world_size(); ++rank) {
    internal::put_own_of(rank, own[static_cast<std::size_t>(rank - 1)], source, *image.layout,
                         image.arena->bytes());
  }
  shelf.own_text.clear();
  return true;
}

}}  // namespace holdfast::v1
