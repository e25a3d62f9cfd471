// A row as a line of JSON, without loss: what a checkpoint of the run keeps, and what OUTPUT.json shows.
//
// Errors: RefusedError for a text that is no row. Threads: pure functions.
#pragma once

#include <string>

#include "table.h"

namespace holdfast::bench {

std::string text_of(const Row& row);
Row row_of(const std::string& text);

}  // namespace holdfast::bench
