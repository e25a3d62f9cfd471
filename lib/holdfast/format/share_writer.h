// Writes a checkpoint file that several ranks share (shares.h): each rank its share with digests beside it,
// and rank 0 the rest. The counterpart of image_writer.h for several processes.
//
// Requires, as write_image: a snapshot staged into an image of the shared plan, and a file opened for direct
// writing. Each rank's image holds what it stages, and the plan's metadata.
// Ensures: write_share writes only this rank's blocks, all after `head`. complete_image writes [0, head)
// last. The file then equals, byte for byte, what write_image writes for the same state.
// Errors, threads: as write_image. Durability: none; the caller syncs.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "holdfast/format/image_writer.h"
#include "holdfast/format/shares.h"

namespace holdfast { inline namespace v0_2 {

// Memory for a rank's share: as large as the file, but only the share's pages are ever touched. Contains the
// plan's metadata where this rank writes it.
std::shared_ptr<Arena> make_share_image(const FilePlan& plan, const Share& share);

struct WrittenShare {
  std::vector<Digest> digests;            // of the share's pieces, in order
  std::optional<std::size_t> not_finite;  // a tensor with such a number, if `check_finite` was set
};

WrittenShare write_share(File& file, const Snapshot& snapshot, const Shares& shares, int rank,
                         const ImageWriterOptions& options, bool check_finite);

// Hashes this rank's pieces without writing: for a rank that does not see the volume.
WrittenShare hash_share(const Snapshot& snapshot, const Shares& shares, int rank,
                        const ImageWriterOptions& options, bool check_finite);

// Rank 0, once every share is written and all sent bytes are in the image: writes the late blocks, then the
// head. `pieces`: the digests of shares.pieces. Passes `not_finite` to options.before_seal. Returns the
// tensors' digests in layout order.
std::vector<Digest> complete_image(File& file, Snapshot& snapshot, const FilePlan& plan, const Shares& shares,
                                   std::span<const Digest> pieces, std::optional<std::size_t> not_finite,
                                   const ImageWriterOptions& options);

}}  // namespace holdfast::v0_2
