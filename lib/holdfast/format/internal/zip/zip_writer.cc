#include "holdfast/format/internal/zip/zip_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/format/internal/little_endian.h"
#include "holdfast/format/internal/zip/crc32.h"
#include "holdfast/format/internal/zip/zip_layout.h"
#include "holdfast/format/layout.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// As PyTorch aligns storages, so that a program that maps the file can use them in place.
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint16_t kPaddingExtra = 0x4246;  // "FB", the extra field with which PyTorch pads
constexpr std::uint64_t kExtraHead = 4;          // identifier and size of an extra field
// Zip64's extra field holds both sizes in a local header (APPNOTE 4.5.3). In the directory the offset of that
// header follows them.
constexpr std::uint64_t kLocalExtra = kExtraHead + 16;
constexpr std::uint64_t kCentralExtra = kExtraHead + 24;
constexpr std::uint16_t kFirstDay = 0x21;  // 1980-01-01: equal tensors give equal archives

class Fields {
 public:
  template <class Integer>
  void add(Integer value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    put_little_endian(std::span<std::byte>(bytes_), at, value);
  }
  void add_text(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  // PyTorch pads with this letter.
  void pad(std::uint64_t size) { bytes_.resize(bytes_.size() + size, std::byte{'Z'}); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// What a local header and the directory say alike, from the version on.
void add_common(Fields& to, const NewZipEntry& entry, std::uint32_t crc, std::uint64_t extra) {
  to.add(kZip64Version);
  to.add(std::uint16_t{0});  // flags
  to.add(kZipStored);
  to.add(std::uint16_t{0});  // time
  to.add(kFirstDay);
  to.add(crc);
  // Both sizes stand in the 64-bit field, however small they are, so that every header's length is known.
  to.add(kZipSee64);
  to.add(kZipSee64);
  to.add(static_cast<std::uint16_t>(entry.name.size()));
  to.add(static_cast<std::uint16_t>(extra));
}

std::vector<std::byte> local_header(const NewZipEntry& entry, std::uint32_t crc, std::uint64_t size) {
  const std::uint64_t extra = size - kZipLocalSize - entry.name.size();
  const std::uint64_t padding = extra - kLocalExtra - kExtraHead;
  Fields fields;
  fields.add(kZipLocalSignature);
  add_common(fields, entry, crc, extra);
  fields.add_text(entry.name);
  fields.add(kZip64Extra);
  fields.add(static_cast<std::uint16_t>(kLocalExtra - kExtraHead));
  fields.add(entry.size);
  fields.add(entry.size);
  fields.add(kPaddingExtra);
  fields.add(static_cast<std::uint16_t>(padding));
  fields.pad(padding);
  return fields.take();
}

}  // namespace

// Two blocks, because the buffer may hold almost one when next() hands out a whole one.
ZipWriter::ZipWriter(File& file, std::vector<NewZipEntry> entries)
    : file_(file), buffer_(2 * kTransferBlock) {
  std::uint64_t at = 0;
  std::uint64_t directory = 0;
  // All places are known before the first byte, so that entries can be written in one pass.
  for (NewZipEntry& asked : entries) {
    // Its length and the padding must fit into 16-bit fields.
    if (asked.name.size() >= 1U << 15U) throw Error("a name in an archive is too long");
    Entry entry{std::move(asked), at, 0, 0};
    const std::uint64_t least = at + kZipLocalSize + entry.asked.name.size() + kLocalExtra + kExtraHead;
    entry.data = (least + kAlignment - 1) / kAlignment * kAlignment;
    at = entry.data + entry.asked.size;
    directory += kZipCentralSize + entry.asked.name.size() + kCentralExtra;
    entries_.push_back(std::move(entry));
  }
  directory_at_ = at;
  length_ = at + directory + kZip64EndSize + kZip64LocatorSize + kZipEndSize;
  // Shows a full disk before the first byte.
  file_.reserve(length_);
  end_full_entries();
}

std::span<std::byte> ZipWriter::next(std::uint64_t bytes) {
  // A whole block at once: O_DIRECT and network volumes want large writes.
  if (filled_ >= kTransferBlock) flush();
  end_full_entries();
  if (current_ == entries_.size() || bytes > kTransferBlock ||
      bytes > entries_[current_].asked.size - written_ - filled_) {
    throw Error("an archive was given more bytes than its entries have");
  }
  const auto room = buffer_.bytes().subspan(filled_, bytes);
  filled_ += bytes;
  return room;
}

void ZipWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto room = next(std::min<std::uint64_t>(bytes.size(), kTransferBlock));
    std::memcpy(room.data(), bytes.data(), room.size());
    bytes = bytes.subspan(room.size());
  }
}

void ZipWriter::finish() {
  end_full_entries();
  if (current_ != entries_.size()) throw Error("an archive was ended before its entries were");
  // Last: until then no program takes the file for an archive.
  file_.write_at(directory(), directory_at_);
}

void ZipWriter::flush() {
  if (filled_ == 0) return;
  Entry& entry = entries_[current_];
  const auto bytes = buffer_.bytes().first(filled_);
  entry.crc = crc32(bytes, entry.crc);
  file_.write_at(bytes, entry.data + written_);
  written_ += std::exchange(filled_, 0);
}

// The header comes last, because it has the checksum of the data.
void ZipWriter::end_full_entries() {
  // Entries without bytes end as soon as they begin, hence the loop.
  while (current_ < entries_.size() && written_ + filled_ == entries_[current_].asked.size) {
    flush();
    const Entry& entry = entries_[current_++];
    file_.write_at(local_header(entry.asked, entry.crc, entry.data - entry.header), entry.header);
    written_ = 0;
  }
}

std::vector<std::byte> ZipWriter::directory() const {
  Fields fields;
  for (const Entry& entry : entries_) {
    fields.add(kZipCentralSignature);
    fields.add(kZip64Version);
    add_common(fields, entry.asked, entry.crc, kCentralExtra);
    fields.add(std::uint16_t{0});  // comment
    fields.add(std::uint16_t{0});  // disk
    fields.add(std::uint16_t{0});  // attributes
    fields.add(std::uint32_t{0});
    fields.add(kZipSee64);
    fields.add_text(entry.asked.name);
    fields.add(kZip64Extra);
    fields.add(static_cast<std::uint16_t>(kCentralExtra - kExtraHead));
    fields.add(entry.asked.size);
    fields.add(entry.asked.size);
    fields.add(entry.header);
  }
  const std::uint64_t count = entries_.size();
  const std::uint64_t end = length_ - kZip64EndSize - kZip64LocatorSize - kZipEndSize;
  fields.add(kZip64EndSignature);
  fields.add(kZip64EndSize - 12);  // without the signature and this field
  fields.add(kZip64Version);
  fields.add(kZip64Version);
  fields.add(std::uint64_t{0});  // disks
  fields.add(count);
  fields.add(count);
  fields.add(end - directory_at_);
  fields.add(directory_at_);
  fields.add(kZip64LocatorSignature);
  fields.add(std::uint32_t{0});
  fields.add(end);
  fields.add(std::uint32_t{1});  // disks
  fields.add(kZipEndSignature);
  fields.add(std::uint32_t{0});  // disks
  fields.add(kZipSee64Short);
  fields.add(kZipSee64Short);
  fields.add(kZipSee64);
  fields.add(kZipSee64);
  fields.add(std::uint16_t{0});  // comment
  return fields.take();
}

}}}  // namespace holdfast::v0_2::internal
