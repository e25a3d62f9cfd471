// Changes an index the way somebody would who knows what it means: offsets, lengths, shapes, types and names
// that nearly fit, stretches that are split, joined, dropped or swapped, attributes of every type.
//
// Threads: free functions.
#pragma once

#include <random>

#include "holdfast/format/internal/header.h"
#include "holdfast/format/reader.h"

namespace holdfast::test {

// One to three changes; `file_length` is what numbers are chosen around.
void mutate_index(CheckpointIndex& index, std::uint64_t file_length, std::mt19937& random);
// One field.
void mutate_header(internal::Header& header, std::mt19937& random);

}  // namespace holdfast::test
