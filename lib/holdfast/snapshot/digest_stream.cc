#include "holdfast/snapshot/digest_stream.h"

#include <cstring>

namespace holdfast { inline namespace v0_2 {

DigestStream::DigestStream() { internal::digest_kernel().begin(hash_); }

void DigestStream::append(std::span<const std::byte> bytes) {
  // Without a check of floats: the digest alone judges these bytes.
  internal::digest_kernel().add(hash_, bytes.data(), bytes.size(), {});
}

Digest DigestStream::take() {
  unsigned char canonical[sizeof(Digest)];
  internal::digest_kernel().end(hash_, canonical);
  internal::digest_kernel().begin(hash_);
  Digest digest;
  std::memcpy(digest.bytes.data(), canonical, sizeof canonical);
  return digest;
}

}}  // namespace holdfast::v0_2
