#include "holdfast/writing/internal/finite_note.h"

#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void note_finite(const Snapshot& snapshot, std::optional<std::size_t> not_finite, bool& was_finite) noexcept {
  // Once for a stretch of such states: a training that has diverged would warn at every save.
  const bool before = std::exchange(was_finite, !not_finite);
  if (!not_finite || !before) return;
  const bool infinity = snapshot.infinity(*not_finite) == Infinity::not_finite;
  log_warning(
      "the state of step {} is not finite: tensor {} holds {}. The checkpoint is recorded as not finite: "
      "KeepBest passes over it, and the newest finite one stays beside it",
      snapshot.step,
      text_or_out_of_memory([&] { return printable(snapshot.layout->tensors()[*not_finite].name); }),
      infinity ? "a NaN or an infinity" : "a NaN");
}

}}}  // namespace holdfast::v0_2::internal
