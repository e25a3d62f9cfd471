// The index as text: for the user block, and as /meta/json for foreign tools. docs/file_format.md#index has
// the grammar.
//
// Writing is canonical: equal content gives equal bytes. Reading is strict: text outside the grammar is a
// Rejection, and memory stays within a few times the text's size, however hostile it is.
// Errors: return values. Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "holdfast/format/reader.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Without version, lengths and user block, which belong to the header.
std::string index_json(const CheckpointIndex& index);
// {"decides": …, "record": …}: the part of the index that the attribute capacity limits.
std::string attributes_json(const Attributes& attributes);
// {"name": value, …} with plain numbers, for foreign tools.
std::string meta_json(const Attributes& attributes);

// Parses what index_json writes. `newer_minor`: skips unknown members at the top level. Checks each name,
// shape and digest by itself, but not the offsets (see segments.h).
std::variant<CheckpointIndex, Rejection> parse_index(std::string_view json, bool newer_minor);

}}}  // namespace holdfast::v0_2::internal
