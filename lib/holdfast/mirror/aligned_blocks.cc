#include "holdfast/mirror/aligned_blocks.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// O_DIRECT wants aligned memory, offsets and lengths.
constexpr std::size_t kUnit = 4096;

}  // namespace

void read_blocks(const File& file, std::uint64_t bytes, AlignedBlock& block,
                 const std::function<void(std::span<const std::byte>)>& sink) {
  for (std::uint64_t done = 0; done < bytes;) {
    const std::size_t want = std::min<std::uint64_t>(kCopyBlock, bytes - done);
    // Whole blocks are read, even at the end, because O_DIRECT refuses other lengths.
    const std::size_t got = std::min(file.read_uncached_at(block.bytes(), done), want);
    if (got < want) throw IoError("read", "the checkpoint", EIO, "it has become shorter while it was read");
    sink(block.bytes().first(got));
    done += got;
  }
}

void BlockStream::append(std::span<const std::byte> bytes) {
  // A whole block of a copy, aligned as it was read, needs no second copy in memory.
  const bool aligned = reinterpret_cast<std::uintptr_t>(bytes.data()) % kUnit == 0;
  if (held_ == 0 && aligned && bytes.size() == kCopyBlock) {
    file_.write_at(bytes, written_);
    written_ += bytes.size();
    return;
  }
  while (!bytes.empty()) {
    const std::size_t part = std::min(bytes.size(), kCopyBlock - held_);
    std::memcpy(block_.bytes().data() + held_, bytes.data(), part);
    held_ += part;
    bytes = bytes.subspan(part);
    if (held_ < kCopyBlock) return;
    file_.write_at(block_.bytes(), written_);
    written_ += held_;
    held_ = 0;
  }
}

void BlockStream::finish() {
  const std::uint64_t length = written_ + held_;
  if (held_ > 0) {
    // Padded to a whole unit for this write; truncate() takes the padding off again.
    const std::size_t padded = (held_ + kUnit - 1) / kUnit * kUnit;
    std::memset(block_.bytes().data() + held_, 0, padded - held_);
    file_.write_at(block_.bytes().first(padded), written_);
    written_ += held_;
    held_ = 0;
  }
  file_.truncate(length);
}

}}  // namespace holdfast::v0_2
