#include "holdfast/ranks/received_file.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "holdfast/io/read_only_file.h"
#include "holdfast/snapshot/arena.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Large enough that the calls cost nothing, and small beside the state.
constexpr std::uint64_t kPiece = 64u << 20;

class ReceivedFile final : public ReadOnlyFile {
 public:
  // A file of that size; reads stop where `bytes` end. `owner` keeps the bytes alive.
  ReceivedFile(std::span<const std::byte> bytes, std::uint64_t size, std::shared_ptr<const void> owner)
      : bytes_(bytes), size_(size), owner_(std::move(owner)) {}

  std::uint64_t size() const override { return size_; }
  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    // Behind the bytes that were received a read finds the end, as in a file that was cut.
    if (offset >= bytes_.size()) return 0;
    const auto part = bytes_.subspan(offset, std::min<std::uint64_t>(buffer.size(), bytes_.size() - offset));
    std::memcpy(buffer.data(), part.data(), part.size());
    return part.size();
  }
  // No device here has these bytes: they came in messages.
  std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    return read_at(buffer, offset);
  }

 private:
  const std::span<const std::byte> bytes_;
  const std::uint64_t size_;
  const std::shared_ptr<const void> owner_;
};

}  // namespace

void send_file(RankChannel& channel, const File& file) {
  const std::uint64_t size = file.size();
  std::vector<std::byte> piece(std::min(kPiece, size));
  for (std::uint64_t offset = 0; offset < size; offset += kPiece) {
    const auto part = std::span(piece).first(std::min(kPiece, size - offset));
    // If the file has become shorter, the buffer's old bytes are sent: every rank then finds the damage.
    file.read_at(part, offset);
    channel.broadcast(part);
  }
}

std::shared_ptr<Arena> receive_file(RankChannel& channel, std::uint64_t bytes, bool keep) {
  // A rank that keeps nothing takes part all the same, because the broadcast is collective.
  const auto arena = std::make_shared<Arena>(keep ? bytes : std::min(kPiece, bytes));
  for (std::uint64_t offset = 0; offset < bytes; offset += kPiece) {
    channel.broadcast(arena->bytes().subspan(keep ? offset : 0, std::min(kPiece, bytes - offset)));
  }
  return keep ? arena : nullptr;
}

std::unique_ptr<File> file_of(std::shared_ptr<Arena> bytes) {
  const std::span<const std::byte> all = bytes->bytes();
  return std::make_unique<ReceivedFile>(all, all.size(), std::move(bytes));
}

std::unique_ptr<File> head_of_file(std::vector<std::byte> head, std::uint64_t size) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(head));
  const std::span<const std::byte> all = *owner;
  return std::make_unique<ReceivedFile>(all, size, std::move(owner));
}

}}}  // namespace holdfast::v0_2::internal
