// How a rank that has read a checkpoint hands its image to other processes of the same machine: it tells
// where the memory is, and they map it. Nobody copies it, and nobody reads or verifies it again.
//
//   offered = offer_image(arena, index, file)      the rank that has read `file` into `arena`
//   map_image(offered, file.size())         the others
//
// The image must live until the others have it. It is found below /proc, by process, start time and PID
// namespace, so it cannot be mistaken for another. A process in another container, or of a user who may not
// look into the first one, does not find it.
//
// Errors: none but std::bad_alloc; what cannot be had is a reason in words. Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "holdfast/base/process/process_identity.h"
#include "holdfast/io/file_system.h"
#include "holdfast/snapshot/arena.h"
#include "holdfast/snapshot/digest.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct OfferedImage {
  std::string why_not = "there is none";  // empty: the rest holds
  ProcessIdentity process = {};
  int descriptor = -1;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::string index;  // the digest of its index in hex, once the image is whole (offer_image)
};
void to_json(nlohmann::json& json, const OfferedImage& image);
// A text that this program did not write is no image.
void from_json(const nlohmann::json& json, OfferedImage& image);

// Where `arena` is. nullptr is no image.
OfferedImage place_of(const std::shared_ptr<Arena>& arena);
// As place_of(), and puts the head of `file`, which its reader left out, into the image: so the others have
// all of the file. `index`: the digest of the index by which the image was verified.
OfferedImage offer_image(const std::shared_ptr<Arena>& arena, const Digest& index, const File& file);

struct MappedImage {
  std::shared_ptr<Arena> image;  // null: why_not says why
  std::string why_not;
};
MappedImage map_image(const OfferedImage& offered, std::uint64_t bytes);

// Equal for processes that may share memory: "BOOT-ID PID-NAMESPACE USER".
std::string own_host();
// Both run on the same machine, whatever keeps them from sharing memory.
bool same_machine(const std::string& host, const std::string& other);

// How each rank gets the checkpoint from which all start.
struct ReadingPlan {
  static constexpr int kSent = -1;
  // By rank, whose image it takes; itself: it reads the file; kSent: rank 0 sends it the bytes.
  std::vector<int> from;

  bool sends() const;           // to any rank
  bool offers(int rank) const;  // another rank takes that rank's image
};
// `hosts`: by rank, the lowest rank of its host. `sees`: by rank, who sees the file; empty: rank 0 alone.
// `image`: rank 0 has an image, and its host is those that can map it. Equal on all ranks.
ReadingPlan plan_reading(const std::vector<int>& hosts, const std::vector<bool>& sees, bool image);

}}}  // namespace holdfast::v0_2::internal
