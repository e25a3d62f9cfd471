#include "holdfast/checkpoint/internal/received_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/snapshot/arena.h"

namespace holdfast::inline v1::internal {
namespace {

constexpr std::uint64_t kPiece = 64u << 20;

class ReceivedFile final : public File {
 public:
  explicit ReceivedFile(std::uint64_t bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes() { return bytes_.bytes(); }

  std::uint64_t size() const override { return bytes_.size(); }
  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    const auto all = std::as_const(bytes_).bytes();
    if (offset >= all.size()) return 0;
    const auto part = all.subspan(offset, std::min<std::uint64_t>(buffer.size(), all.size() - offset));
    std::memcpy(buffer.data(), part.data(), part.size());
    return part.size();
  }
  std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    return read_at(buffer, offset);
  }
  void write_at(std::span<const std::byte>, std::uint64_t) override { refuse("write"); }
  void reserve(std::uint64_t) override { refuse("fallocate"); }
  void truncate(std::uint64_t) override { refuse("ftruncate"); }
  void sync() override { refuse("fsync"); }
  void close() override {}

 private:
  [[noreturn]] static void refuse(const char* operation) {
    throw IoError(operation, "a file received from rank 0", EBADF);
  }

  Arena bytes_;
};

}  // namespace

void send_file(Companions& companions, const File& file) {
  const std::uint64_t size = file.size();
  std::vector<std::byte> piece(std::min(kPiece, size));
  for (std::uint64_t offset = 0; offset < size; offset += kPiece) {
    const auto part = std::span(piece).first(std::min(kPiece, size - offset));
    // A file that is short by now is sent as it is: every rank finds the damage.
    file.read_at(part, offset);
    companions.broadcast(part);
  }
}

std::unique_ptr<File> receive_file(Companions& companions, std::uint64_t bytes) {
  auto file = std::make_unique<ReceivedFile>(bytes);
  for (std::uint64_t offset = 0; offset < bytes; offset += kPiece) {
    companions.broadcast(file->bytes().subspan(offset, std::min(kPiece, bytes - offset)));
  }
  return file;
}

}  // namespace holdfast::inline v1::internal
