// Copies one tensor of a checkpoint into a new file, piece by piece, verified against its digest, and as
// another element type if the user wants one.
//
// Errors: damage is a value; IoError. Threads: one. Memory: 8 MiB more for a conversion.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "holdfast/format/reader.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// The element type in the new file: `wanted` replaces floating-point types, and no others.
DType exported_dtype(DType from, std::optional<DType> wanted);
// True if exported_dtype accepts it: bfloat16.
bool can_export_as(DType wanted);

// Memory for the next `bytes` bytes of the new file, at most kTransferBlock.
using NextBytes = std::function<std::span<std::byte>(std::uint64_t bytes)>;

// Requires a resolved mode. Calls `next` for exactly the tensor's bytes in the new type.
std::optional<Rejection> copy_tensor(const File& from, const IndexedTensor& tensor,
                                     std::optional<DType> wanted, ReadMode mode, const NextBytes& next);

}}}  // namespace holdfast::v0_2::internal
