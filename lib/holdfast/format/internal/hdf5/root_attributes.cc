#include "holdfast/format/internal/hdf5/root_attributes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <variant>

#include "holdfast/base/error.h"
#include "holdfast/format/internal/little_endian.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Offsets in HDF5's superblock (versions 2, 3) and object header (version 2). Before the root's address lie
// the signature, four single bytes and three addresses.
constexpr std::uint64_t kRootAddressAt = 36;
constexpr std::uint64_t kSignatureSize = 4;
constexpr std::uint64_t kChecksumSize = 4;
constexpr unsigned kTimesFlag = 1U << 5U;
constexpr unsigned kPhaseFlag = 1U << 4U;
constexpr unsigned kOrderFlag = 1U << 2U;
constexpr unsigned kSizeFlags = 3;
constexpr unsigned kContinuation = 0x10;  // the message that names the next block

[[noreturn]] void unexpected(const char* what) {
  throw Error(std::string("libhdf5 laid the root group out in an unknown way: ") + what);
}

std::span<const std::byte> part(std::span<const std::byte> bytes, std::uint64_t at, std::uint64_t size) {
  if (at > bytes.size() || size > bytes.size() - at) unexpected("it ends too early");
  return bytes.subspan(at, size);
}

std::uint64_t number(std::span<const std::byte> bytes, std::uint64_t at, std::uint64_t size) {
  std::uint64_t value = 0;
  for (std::uint64_t i = size; i-- > 0;)
    value = value << 8U | std::to_integer<unsigned>(part(bytes, at + i, 1)[0]);
  return value;
}

void check_block(std::span<const std::byte> hdf5, ByteRange block, const char* signature) {
  const auto bytes = part(hdf5, block.begin, block.size());
  if (block.size() <= kSignatureSize + kChecksumSize ||
      std::memcmp(bytes.data(), signature, kSignatureSize) != 0) {
    unexpected("no block of an object header");
  }
  const std::uint64_t checked = block.size() - kChecksumSize;
  if (number(bytes, checked, kChecksumSize) != lookup3(bytes.first(checked)))
    unexpected("a checksum differs");
}

// Reads the object header at the root group's address, and the blocks that continue it.
std::vector<ByteRange> blocks_of_root(std::span<const std::byte> hdf5) {
  const std::uint64_t root = number(hdf5, kRootAddressAt, 8);
  const auto flags = static_cast<unsigned>(number(hdf5, root + 5, 1));
  // Optional fields of an object header, version 2 (HDF5 File Format Specification 3.0, IV.A.1.b).
  std::uint64_t first = root + 6 + ((flags & kTimesFlag) != 0 ? 16 : 0) + ((flags & kPhaseFlag) != 0 ? 4 : 0);
  const std::uint64_t size_bytes = std::uint64_t{1} << (flags & kSizeFlags);
  const std::uint64_t size = number(hdf5, first, size_bytes);
  first += size_bytes;
  // Type (1 byte), size (2) and flags (1), and the creation order (2) where the header has it.
  const std::uint64_t message_head = (flags & kOrderFlag) != 0 ? 6 : 4;

  std::vector<ByteRange> blocks{{root, first + size + kChecksumSize}};
  check_block(hdf5, blocks[0], "OHDR");
  // The list grows while it is read: each block may name another one.
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::uint64_t end = blocks[i].end - kChecksumSize;
    std::uint64_t at = i == 0 ? first : blocks[i].begin + kSignatureSize;
    // A gap that is too short for a message ends a block.
    while (end - at >= message_head) {
      const std::uint64_t data = at + message_head;
      const std::uint64_t length = number(hdf5, at + 1, 2);
      if (length > end - data) unexpected("a message is longer than its block");
      if (number(hdf5, at, 1) == kContinuation) {
        const std::uint64_t next = number(hdf5, data, 8);
        // Unlike the size in the first block, this length includes signature and checksum.
        blocks.push_back({next, next + number(hdf5, data + 8, 8)});
        check_block(hdf5, blocks.back(), "OCHK");
      }
      at = data + length;
    }
  }
  return blocks;
}

std::uint64_t place_of(std::string_view placeholder, std::span<const std::byte> hdf5,
                       const std::vector<ByteRange>& blocks) {
  for (const ByteRange& block : blocks) {
    const auto bytes = part(hdf5, block.begin, block.size());
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    // The placeholders are long and unusual enough to appear once.
    if (const std::size_t at = text.find(placeholder); at != text.npos) return block.begin + at;
  }
  unexpected("an attribute is missing");
}

std::string text_of(const Attributes& attributes, std::string_view name) {
  const Attribute* attribute = attributes.find(name);
  if (attribute == nullptr) return {};
  if (const auto* integer = std::get_if<std::int64_t>(&attribute->value)) return std::to_string(*integer);
  const auto* text = std::get_if<std::string>(&attribute->value);
  return text != nullptr ? *text : std::string();
}

// At most `room` bytes, without a part of a character at the end.
void put_text(std::span<std::byte> room, std::string text) {
  if (text.size() > room.size()) {
    std::size_t size = room.size();
    // A byte of the form 10xxxxxx continues a character, so step back to its first byte.
    while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U) --size;
    text.resize(size);
  }
  std::memcpy(room.data(), text.data(), text.size());
  std::fill(room.begin() + static_cast<std::ptrdiff_t>(text.size()), room.end(), std::byte{0});
}

}  // namespace

std::string run_placeholder() { return std::string(kRootRunSize, 'r'); }
std::string version_placeholder() { return std::string(kRootVersionSize, 'v'); }

RootAttributes find_root_attributes(std::span<const std::byte> hdf5, std::uint64_t user_block) {
  RootAttributes places{.blocks = blocks_of_root(hdf5)};
  std::array<std::byte, sizeof kStepPlaceholder> step{};
  put_little_endian(std::span<std::byte>(step), 0, static_cast<std::uint64_t>(kStepPlaceholder));
  const std::string_view step_bytes(reinterpret_cast<const char*>(step.data()), step.size());
  places.step = user_block + place_of(step_bytes, hdf5, places.blocks);
  places.run = user_block + place_of(run_placeholder(), hdf5, places.blocks);
  places.version = user_block + place_of(version_placeholder(), hdf5, places.blocks);
  for (ByteRange& block : places.blocks) block = {block.begin + user_block, block.end + user_block};
  return places;
}

void put_root_attributes(std::span<std::byte> image, const RootAttributes& places, const Snapshot& snapshot) {
  const Attributes& all = snapshot.attributes;
  std::string run;
  for (const std::string& word : {text_of(all, "run.time"), text_of(all, "run.host")}) {
    if (!word.empty()) run += ", " + word;
  }
  const std::string attempt = text_of(all, "run.attempt");
  put_little_endian(image, places.step, static_cast<std::uint64_t>(snapshot.step));
  put_text(image.subspan(places.run, kRootRunSize), attempt.empty() ? "" : "attempt " + attempt + run);
  put_text(image.subspan(places.version, kRootVersionSize), text_of(all, "environment.holdfast"));
  for (const ByteRange& block : places.blocks) {
    const auto bytes = image.subspan(block.begin, block.size());
    // libhdf5 checks these sums when it opens the file, so they must follow every change.
    const std::uint64_t checked = block.size() - kChecksumSize;
    put_little_endian(bytes, checked, lookup3(bytes.first(checked)));
  }
}

// Bob Jenkins' lookup3, hashlittle() with the initial value 0, as HDF5 uses it for metadata.
std::uint32_t lookup3(std::span<const std::byte> bytes) {
  // Three words of 32 bits: lookup3's state.
  constexpr std::size_t kRound = 12;
  std::uint32_t a = 0xdeadbeef + static_cast<std::uint32_t>(bytes.size());
  std::uint32_t b = a;
  std::uint32_t c = a;
  const auto add = [&](std::span<const std::byte> round) {
    std::array<std::byte, kRound> padded{};
    std::copy(round.begin(), round.end(), padded.begin());
    a += get_little_endian<std::uint32_t>(padded, 0);
    b += get_little_endian<std::uint32_t>(padded, 4);
    c += get_little_endian<std::uint32_t>(padded, 8);
  };
  const auto turn = [](std::uint32_t& x, std::uint32_t y, int by) { x = (x ^ y) - std::rotl(y, by); };
  // Not >=: lookup3 leaves a last whole round to its final mixing.
  for (; bytes.size() > kRound; bytes = bytes.subspan(kRound)) {
    add(bytes.first(kRound));
    const auto mix = [](std::uint32_t& x, std::uint32_t& y, std::uint32_t z, int by) {
      x = (x - y) ^ std::rotl(y, by);
      y += z;
    };
    mix(a, c, b, 4);
    mix(b, a, c, 6);
    mix(c, b, a, 8);
    mix(a, c, b, 16);
    mix(b, a, c, 19);
    mix(c, b, a, 4);
  }
  if (bytes.empty()) return c;
  add(bytes);
  turn(c, b, 14);
  turn(a, c, 11);
  turn(b, a, 25);
  turn(c, b, 16);
  turn(a, c, 4);
  turn(b, a, 14);
  turn(c, b, 24);
  return c;
}

}}}  // namespace holdfast::v0_2::internal
