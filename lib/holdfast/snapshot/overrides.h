// Options that the user allows to differ from the recorded ones at a resume.
//
// The record "state.options" of a training state lists its options by full name ("optimizer.group.0.lr"). An
// override names one or more of them: in full, or by the last part after a dot ("group.0.lr", "lr").
//
// Errors: RefusedError if "state.options" is not a list of texts. Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/snapshot/attributes.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr char kStateOptions[] = "state.options";

using Overrides = std::vector<std::string>;

// The elements of `options` that `overrides` name.
HOLDFAST_EXPORT std::vector<std::string> overridden(const std::vector<std::string>& options,
                                                    const Overrides& overrides);

// The named options that differ, one text each: "optimizer.group.0.lr: 0.1 → 0.01". SnapshotSource::check
// refuses other differences.
HOLDFAST_EXPORT std::vector<std::string> accepted_differences(const Attributes& recorded,
                                                              const Attributes& now,
                                                              const Overrides& overrides);

}}  // namespace holdfast::v0_2
