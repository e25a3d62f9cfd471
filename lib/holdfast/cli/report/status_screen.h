// The report of `holdfast status` for people: a screen of at most 20 lines, or one line.
//
// Errors: none; members that are missing are left out. Threads: pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "holdfast/cli/output/color.h"

namespace holdfast { inline namespace v0_2 {

// Lines without newlines, at most `width` characters each.
std::vector<std::string> status_screen(const nlohmann::ordered_json& report, const Paint& paint,
                                       std::size_t width);
// At most `width` characters of it.
std::string cut_to_width(const std::string& text, std::size_t width);
std::string status_line(const nlohmann::ordered_json& report);

}}  // namespace holdfast::v0_2
