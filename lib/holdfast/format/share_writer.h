// Writes the parts of a checkpoint file that several ranks write together (shares.h): each rank its share,
// with digests beside it, and rank 0 what completes the file. What image_writer.h does for one process.
//
// Requires: as write_image: a snapshot staged into an image of the plan by which it was divided (each rank's
// image holds what it stages, and the plan's own bytes), a file opened for direct writing.
// Ensures: write_share writes this rank's blocks and no others, none before `head`; complete_image writes
// [0, head) after everything else, and the whole file is then, byte for byte, what write_image writes of the
// same state.
// Errors: as write_image. Threads: as write_image. Durability: none; the caller syncs.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "holdfast/format/image_writer.h"
#include "holdfast/format/shares.h"

namespace holdfast::inline v1 {

// Memory for a rank's share: as large as the file, of which only the pages of the share are ever touched. The
// plan's own bytes are in place where that rank writes them.
std::shared_ptr<Arena> make_share_image(const FilePlan& plan, const Share& share);

struct WrittenShare {
  std::vector<Digest> digests;  // of the share's pieces, in their order
  bool finite = true;           // no NaN or infinity in them, where `look` asked for that
};

WrittenShare write_share(File& file, const Snapshot& snapshot, const Shares& shares, int rank,
                         const ImageWriterOptions& options, bool look);

// Hashes this rank's pieces alone: of one that writes nothing, because it does not see the volume.
WrittenShare hash_share(const Snapshot& snapshot, const Shares& shares, int rank, int threads, bool look);

// Rank 0, once every share is written and everything sent is in the image: the late blocks, then the head.
// `pieces`: the digests of shares.pieces. options.before_seal hears `finite`, if it is there. Returns the
// tensors' digests in layout order.
std::vector<Digest> complete_image(File& file, Snapshot& snapshot, const FilePlan& plan, const Shares& shares,
                                   std::span<const Digest> pieces, bool finite,
                                   const ImageWriterOptions& options);

}  // namespace holdfast::inline v1
