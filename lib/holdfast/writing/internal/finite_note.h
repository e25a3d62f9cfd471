// Logs a warning about a state that is not finite (snapshot/finite.h), with the name of a tensor. Such a
// state may be worthless, and if every state is like that, no file is the newest finite one.
//
// Errors: none. Threads: pure, except for the log.
#pragma once

#include <cstddef>
#include <optional>

#include "holdfast/snapshot/snapshot.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Call it for every written state, with a tensor that is not finite if there is one. It warns at the first
// such state, and at the first after a finite one. Keep `was_finite` between calls; it starts as true.
void note_finite(const Snapshot& snapshot, std::optional<std::size_t> not_finite, bool& was_finite) noexcept;

}}}  // namespace holdfast::v0_2::internal
