#include "holdfast/format/internal/zip/zip_reader.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>

#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/little_endian.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/internal/zip/zip_layout.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr std::uint64_t kMaxEntries = 1'000'000;
constexpr std::uint64_t kMaxDirectory = 256U
                                        << 20U;  // it is read whole; a sparse file costs its maker nothing

struct ZipRefusal {
  std::string reason;
};
[[noreturn]] void refuse(const std::string& what) { throw ZipRefusal{"zip archive: " + what}; }

std::uint16_t get16(std::span<const std::byte> bytes, std::size_t at) {
  return get_little_endian<std::uint16_t>(bytes, at);
}
std::uint32_t get32(std::span<const std::byte> bytes, std::size_t at) {
  return get_little_endian<std::uint32_t>(bytes, at);
}
std::uint64_t get64(std::span<const std::byte> bytes, std::size_t at) {
  return get_little_endian<std::uint64_t>(bytes, at);
}

void read(const File& file, std::span<std::byte> to, std::uint64_t at) {
  if (file.read_at(to, at) < to.size()) refuse("the file became shorter while it was read");
}

struct DirectoryPlace {
  std::uint64_t entries = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

DirectoryPlace place_of_directory(const File& file) {
  const std::uint64_t length = file.size();
  if (length < kZipEndSize) refuse("it ends before its directory");
  std::uint64_t end = length - kZipEndSize;
  std::array<std::byte, kZipEndSize> last{};
  read(file, last, end);
  // No comment: the end record is then at a known place, and appended bytes show.
  if (get32(last, 0) != kZipEndSignature || get16(last, 20) != 0) {
    refuse("no directory at its end: it was cut off, or something was appended");
  }
  DirectoryPlace place{get16(last, 10), get32(last, 16), get32(last, 12)};
  // All ones mean that the value stands in the 64-bit record.
  const bool see_64 = place.entries == kZipSee64Short || place.offset == kZipSee64 || place.size == kZipSee64;
  std::array<std::byte, kZip64LocatorSize> locator{};
  bool has_locator = false;
  if (end >= kZip64LocatorSize) {
    read(file, locator, end - kZip64LocatorSize);
    has_locator = get32(locator, 0) == kZip64LocatorSignature;
  }
  if (see_64 && !has_locator) refuse("the 64-bit end of its directory is missing");
  // PyTorch writes the 64-bit records into small archives too. Where both exist, the 64-bit one counts.
  if (has_locator) {
    end -= kZip64LocatorSize;
    const std::uint64_t at = get64(locator, 8);
    if (end < kZip64EndSize || at != end - kZip64EndSize)
      refuse("the 64-bit end of its directory is elsewhere");
    std::array<std::byte, kZip64EndSize> end_64{};
    read(file, end_64, at);
    if (get32(end_64, 0) != kZip64EndSignature) refuse("the 64-bit end of its directory is missing");
    place = {get64(end_64, 32), get64(end_64, 48), get64(end_64, 40)};
    end = at;
  }
  if (place.offset > end || place.size != end - place.offset) refuse("its directory is not at its end");
  // A directory must have room for its entries, so that a small file cannot ask for much memory.
  if (place.size > kMaxDirectory || place.entries > kMaxEntries ||
      place.entries > place.size / kZipCentralSize) {
    refuse("a directory of " + std::to_string(place.size) + " bytes cannot have " +
           std::to_string(place.entries) + " entries that Holdfast reads");
  }
  return place;
}

struct Listed {
  ZipEntry entry;
  std::uint64_t header = 0;
};

// The 64-bit values stand in the extra field, in this order, for each field that refers to them.
void take_extra(std::span<const std::byte> extra, std::array<std::uint64_t*, 3> fields) {
  while (extra.size() >= 4) {
    const std::uint16_t kind = get16(extra, 0);
    const std::uint16_t size = get16(extra, 2);
    extra = extra.subspan(4);
    if (size > extra.size()) refuse("an extra field is longer than its entry");
    if (kind == kZip64Extra) {
      std::size_t at = 0;
      for (std::uint64_t* const field : fields) {
        // Only fields that are all ones have a value here.
        if (*field != kZipSee64) continue;
        if (at + 8 > size) refuse("a 64-bit size is missing");
        *field = get64(extra, at);
        at += 8;
      }
      return;
    }
    extra = extra.subspan(size);
  }
}

std::vector<Listed> read_directory(std::span<const std::byte> directory, std::uint64_t count) {
  std::vector<Listed> listed;
  std::unordered_set<std::string_view> names;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (directory.size() < kZipCentralSize || get32(directory, 0) != kZipCentralSignature) {
      refuse("entry " + std::to_string(i) + " of its directory is broken");
    }
    const std::uint64_t name_size = get16(directory, 28);
    const std::uint64_t extra_size = get16(directory, 30);
    const std::uint64_t total = kZipCentralSize + name_size + extra_size + get16(directory, 32);
    if (total > directory.size()) refuse("entry " + std::to_string(i) + " of its directory is broken");
    const std::string_view name(reinterpret_cast<const char*>(&directory[0]) + kZipCentralSize, name_size);
    if ((get16(directory, 8) & kZipEncrypted) != 0) refuse("'" + printable(name) + "' is encrypted");
    // Tools disagree about which of two equal names counts.
    if (!names.insert(name).second) refuse("two entries are named '" + printable(name) + "'");
    Listed entry;
    entry.entry.name = name;
    entry.entry.stored = get16(directory, 10) == kZipStored;
    entry.entry.crc = get32(directory, 16);
    entry.entry.size = get32(directory, 20);
    std::uint64_t unpacked = get32(directory, 24);
    entry.header = get32(directory, 42);
    take_extra(directory.subspan(kZipCentralSize + name_size, extra_size),
               {&unpacked, &entry.entry.size, &entry.header});
    // Compressed entries are listed too, because only those that hold tensors must be plain.
    if (entry.entry.stored && unpacked != entry.entry.size) {
      refuse("'" + printable(name) + "' is stored with another size than it has");
    }
    listed.push_back(std::move(entry));
    directory = directory.subspan(total);
  }
  if (!directory.empty()) refuse("its directory has bytes that belong to no entry");
  return listed;
}

// Fills in where the data is.
void check_places(const File& file, std::vector<Listed>& listed, std::uint64_t end) {
  std::vector<Listed*> by_place;
  by_place.reserve(listed.size());
  for (Listed& entry : listed) by_place.push_back(&entry);
  std::sort(by_place.begin(), by_place.end(),
            [](const Listed* a, const Listed* b) { return a->header < b->header; });
  std::uint64_t covered = 0;
  for (Listed* const each : by_place) {
    const std::string shown = "'" + printable(each->entry.name) + "'";
    // Overlapping entries could give one stretch of bytes two meanings.
    if (each->header < covered) refuse(shown + " overlaps another entry");
    if (each->header > end || end - each->header < kZipLocalSize + each->entry.name.size()) {
      refuse(shown + " lies outside of it");
    }
    std::vector<std::byte> header(kZipLocalSize + each->entry.name.size());
    read(file, header, each->header);
    const std::string_view name(reinterpret_cast<const char*>(header.data()) + kZipLocalSize,
                                each->entry.name.size());
    // Some programs believe the local header and others the directory, so both must say the same.
    if (get32(header, 0) != kZipLocalSignature || get16(header, 26) != each->entry.name.size() ||
        name != each->entry.name || (get16(header, 8) == kZipStored) != each->entry.stored) {
      refuse(shown + " is another entry than its directory says");
    }
    // The local extra field may have another length than the one in the directory.
    each->entry.offset = each->header + header.size() + get16(header, 28);
    if (each->entry.offset > end || each->entry.size > end - each->entry.offset) {
      refuse(shown + " reaches out of it");
    }
    covered = each->entry.offset + each->entry.size;
  }
}

}  // namespace

bool looks_like_zip(const File& file) {
  std::array<std::byte, 4> start{};
  return file.read_at(start, 0) == start.size() && get32(start, 0) == kZipLocalSignature;
}

std::variant<std::vector<ZipEntry>, Rejection> read_zip(const File& file) {
  try {
    const DirectoryPlace place = place_of_directory(file);
    Arena directory(place.size);
    read(file, directory.bytes(), place.offset);
    std::vector<Listed> listed = read_directory(directory.bytes(), place.entries);
    check_places(file, listed, place.offset);
    std::vector<ZipEntry> entries;
    entries.reserve(listed.size());
    for (Listed& entry : listed) entries.push_back(std::move(entry.entry));
    return entries;
  } catch (const ZipRefusal& refusal) {
    return damaged(refusal.reason);
  }
}

}}}  // namespace holdfast::v0_2::internal
