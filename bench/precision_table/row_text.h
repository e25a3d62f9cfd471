// A row as a line of JSON, without loss. Checkpoints of the bench and OUTPUT.json contain it.
//
// Errors: RefusedError for text that is no row. Threads: pure functions.
#pragma once

#include <string>

#include "table.h"

namespace holdfast::bench {

std::string text_of(const Row& row);
Row row_of(const std::string& text);

}  // namespace holdfast::bench
