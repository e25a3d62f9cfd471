// The starting points that a user chose (`--resume-from`), and what has grown from them.
//
// Each checkpoint records those of its history (Branches). Whatever restarts a run repeats its command, with
// the same choice. So a start takes the newest checkpoint if that has grown from the choice. Another word
// after "@" makes it another choice: "1200", "1200@again".
//
// Errors: starting_point_from() throws UsageError. Threads: plain values.
#pragma once

#include <filesystem>
#include <string>

#include "holdfast/io/file_system.h"
#include "holdfast/store/checkpoint_store.h"

namespace holdfast { inline namespace v0_2 {

// "1200", "1200@again", or a file: one of the run directory by its name or path, or one elsewhere. A word
// after "@" needs a step, or the name of a checkpoint, before it. Empty: nothing is given.
StartingPoint starting_point_from(const std::string& text, FileSystem& file_system,
                                  const std::filesystem::path& directory);
// The record of this choice, where it led to the file `name` in the run directory.
std::string branch_from(const StartingPoint& point, const std::string& name);
bool has_grown_from(const Branches& branches, const StartingPoint& point);
// For people: how to make the same point another choice.
std::string once_more(const StartingPoint& point);

}}  // namespace holdfast::v0_2
