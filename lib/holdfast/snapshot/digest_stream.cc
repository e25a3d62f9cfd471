#include "holdfast/snapshot/digest_stream.h"

#include <xxhash.h>

#include <cstring>
#include <new>

namespace holdfast { inline namespace v0_2 {
namespace {

XXH3_state_t* of(void* state) { return static_cast<XXH3_state_t*>(state); }

}  // namespace

DigestStream::DigestStream() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(of(state_.get()));
}

void DigestStream::Free::operator()(void* state) const { XXH3_freeState(of(state)); }

void DigestStream::append(std::span<const std::byte> bytes) {
  XXH3_128bits_update(of(state_.get()), bytes.data(), bytes.size());
}

Digest DigestStream::take() {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(of(state_.get())));
  XXH3_128bits_reset(of(state_.get()));
  Digest digest;
  std::memcpy(digest.bytes.data(), canonical.digest, sizeof canonical.digest);
  return digest;
}

}}  // namespace holdfast::v0_2
