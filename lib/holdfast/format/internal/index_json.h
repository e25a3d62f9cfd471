// The index in text: what goes into the user block, and /meta/json for foreign tools. Grammar in layout.h.
//
// Writing is canonical: equal content gives equal bytes. Reading is strict: whatever the grammar does not
// name is a Rejection, and memory stays within a few times the text's size, however hostile it is.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "holdfast/format/reader.h"

namespace holdfast::inline v1::internal {

// Version, lengths and the user block are the header's and not written here.
std::string index_json(const CheckpointIndex& index);
// {"decides": …, "record": …}; the part of the index that A bounds.
std::string attributes_json(const Attributes& attributes);
// {"name": value, …} with plain numbers.
std::string meta_json(const Attributes& attributes);

// Fills in what index_json writes. `newer_minor`: unknown members on the top level are skipped.
// Names, shapes and digests are checked by themselves; offsets are not (see tiling.h).
std::variant<CheckpointIndex, Rejection> parse_index(std::string_view json, bool newer_minor);

}  // namespace holdfast::inline v1::internal
