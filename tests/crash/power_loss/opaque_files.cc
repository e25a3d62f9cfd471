#include <array>
#include <cstring>
#include <vector>

#include "file_maker.h"
#include "holdfast/snapshot/arena.h"
#include "holdfast/snapshot/digest.h"
#include "random.h"

namespace holdfast::test::power_loss {
namespace {

constexpr std::uint64_t kBlock = 4096;
constexpr std::uint64_t kMostBody = 3 * kBlock;
constexpr std::uint64_t kMagic = 0x2145554741504f21;

struct Head {
  std::uint64_t magic = kMagic;
  std::int64_t step = 0;
  AttemptNumber attempt = 0;
  std::uint64_t finite = 0;
  std::uint64_t body = 0;  // bytes
  Digest body_digest;
  std::uint64_t ancestors = 0;
  std::array<std::pair<AttemptNumber, std::int64_t>, 16> ancestry{};
  Digest digest;  // of all before it
};
constexpr std::size_t kDigested = offsetof(Head, digest);

Digest digest_of_head(const Head& head) {
  return digest_of(std::as_bytes(std::span(&head, 1)).first(kDigested));
}

Verdict damaged(const char* what) {
  Verdict verdict;
  verdict.kind = Verdict::Kind::damaged;
  verdict.reason = what;
  return verdict;
}

class OpaqueFiles final : public FileMaker, public Verifier {
 public:
  CommitRequest request(const Content& content) override {
    const std::uint64_t body =
        kBlock * (1 + mix(content.attempt * 1000 + static_cast<std::uint64_t>(content.step)) % 3);
    return {.step = content.step,
            .bytes = kBlock + body,
            .ancestry = content.ancestry,
            .write = [this, content, body](File& file) { write(file, content, body); }};
  }
  Verifier& verifier() override { return *this; }

  Verdict inspect(const File& file, Depth depth, bool uncached) override {
    const auto read = [&](std::span<std::byte> to, std::uint64_t at) {
      return uncached ? file.read_uncached_at(to, at) : file.read_at(to, at);
    };
    Head head;
    if (read(std::as_writable_bytes(std::span(&head, 1)), 0) != sizeof head) return damaged("short head");
    if (head.magic != kMagic || head.digest != digest_of_head(head)) return damaged("head");
    if (file.size() != kBlock + head.body) return damaged("length");
    Verdict verdict;
    verdict.step = head.step;
    verdict.attempt = head.attempt;
    verdict.finite = head.finite != 0;
    for (std::size_t i = 0; i < head.ancestors; ++i) verdict.ancestry.insert(head.ancestry[i]);
    if (depth == Depth::head) return verdict;
    const std::span<std::byte> body = buffer_.bytes().first(head.body);
    if (read(body, kBlock) != head.body || digest_of(body) != head.body_digest) return damaged("body");
    return verdict;
  }

 private:
  void write(File& file, const Content& content, std::uint64_t length) {
    const std::span<std::byte> all = buffer_.bytes();
    const std::span<std::byte> body = all.subspan(kBlock, length);
    Random words(content.attempt * 1'000'003 + static_cast<std::uint64_t>(content.step));
    for (std::size_t i = 0; i < length; i += 8) {
      const std::uint64_t word = words.next();
      std::memcpy(body.data() + i, &word, 8);
    }
    std::memset(all.data(), 0, kBlock);
    Head head;
    head.step = content.step;
    head.attempt = content.attempt;
    head.finite = content.finite ? 1 : 0;
    head.body = length;
    head.body_digest = digest_of(body);
    for (const auto& ancestor : content.ancestry) head.ancestry.at(head.ancestors++) = ancestor;
    head.digest = digest_of_head(head);
    std::memcpy(all.data(), &head, sizeof head);
    // As the format does: the body in pieces, the head last.
    for (std::uint64_t at = kBlock; at < kBlock + length; at += kBlock)
      file.write_at(all.subspan(at, kBlock), at);
    file.write_at(all.first(kBlock), 0);
  }

  Arena buffer_{kBlock + kMostBody};
};

}  // namespace

std::unique_ptr<FileMaker> opaque_files() { return std::make_unique<OpaqueFiles>(); }

}  // namespace holdfast::test::power_loss
