#include "holdfast/snapshot/digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "holdfast/snapshot/digest_stream.h"

namespace holdfast { namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Digest, IsCanonicalXxh3) {
  // The specification's value for the empty input; the second is that of libxxhash.
  EXPECT_EQ(to_hex(digest_of({})), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(to_hex(digest_of(bytes_of("holdfast"))), "d725ef720e130d9fdf1a3c122ca59e45");
}

TEST(Digest, TensorDigestIsTheDigestOfItsPieces) {
  EXPECT_EQ(tensor_digest({}), digest_of({}));
  const Digest one = digest_of(bytes_of("abc"));
  EXPECT_EQ(tensor_digest(bytes_of("abc")), digest_of(one.bytes));

  std::vector<std::byte> large(kDigestPiece + 3, std::byte{7});
  const std::span<const std::byte> all(large);
  const std::vector<Digest> pieces{digest_of(all.first(kDigestPiece)), digest_of(all.subspan(kDigestPiece))};
  EXPECT_EQ(tensor_digest(all), combine_digests(pieces));
  const Digest before = tensor_digest(all);
  large.back() ^= std::byte{1};
  EXPECT_NE(tensor_digest(all), before);
}

TEST(Digest, AStreamHasTheDigestOfItsBytes) {
  std::vector<std::byte> bytes(100'000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 3);
  DigestStream stream;
  for (const std::size_t piece : {1, 255, 4096, 200'000}) {
    for (std::span<const std::byte> left(bytes); !left.empty();) {
      const std::size_t count = std::min(piece, left.size());
      stream.append(left.first(count));
      left = left.subspan(count);
    }
    EXPECT_EQ(stream.take(), digest_of(bytes)) << piece;
  }
  EXPECT_EQ(stream.take(), digest_of({}));
}

TEST(Digest, HexIsStrict) {
  const Digest digest = digest_of(bytes_of("x"));
  const std::string hex = to_hex(digest);
  EXPECT_EQ(digest_from_hex(hex), digest);
  EXPECT_EQ(digest_from_hex(hex.substr(1)), std::nullopt);
  EXPECT_EQ(digest_from_hex(hex + "0"), std::nullopt);
  std::string upper = hex;
  upper[0] = 'A';
  EXPECT_EQ(digest_from_hex(upper), std::nullopt);
  upper[0] = 'g';
  EXPECT_EQ(digest_from_hex(upper), std::nullopt);
}

}}  // namespace holdfast
