// Header and index parser. The input is the index's text, which is sealed into a file with every digest in
// order; after the byte 0x1e, nine bytes an edit of the header: which field, and its value.
#include "bytes_file.h"
#include "holdfast/base/error.h"
#include "holdfast/format/internal/index_json.h"
#include "holdfast/format/internal/little_endian.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/layout.h"
#include "holdfast/staging/run_record.h"
#include "memory_budget.h"
#include "sealed_file.h"

namespace holdfast::test { namespace {

constexpr std::size_t kEdit = 9;
constexpr char kSeparator = '\x1e';

void edit(std::vector<std::byte>& file, std::span<const std::byte> edits) {
  for (; edits.size() >= kEdit; edits = edits.subspan(kEdit)) {
    internal::Header header = header_of(file);
    const auto value = internal::get_little_endian<std::uint64_t>(edits, 1);
    switch (static_cast<unsigned>(edits[0]) % 8) {
      case 0:
        header.format_version = static_cast<std::uint32_t>(value);
        break;
      case 1:
        header.lowest_reader = static_cast<std::uint32_t>(value);
        break;
      case 2:
        header.file_length = value;
        break;
      case 3:
        header.user_block = value < 64 ? std::uint64_t{1} << value : value;
        break;
      case 4:
        header.index_length = value;
        break;
      case 5:  // the file itself, and the header with it
        file.resize(kHeaderSize + value % (4 * kMinUserBlock));
        header.file_length = file.size();
        break;
      case 6:  // any byte, and no digest knows of it
        file[value % file.size()] ^= static_cast<std::byte>(value >> 56);
        continue;
      default:
        file.resize(kHeaderSize + value % (4 * kMinUserBlock));
        continue;
    }
    set_header(file, header);
  }
}

// What was read is written and read again the same.
void check_round_trip(const CheckpointIndex& index) {
  const std::string text = internal::index_json(index);
  const auto again = internal::parse_index(text, false);
  require(std::holds_alternative<CheckpointIndex>(again),
          "an index that was accepted is refused once written again");
  require(internal::index_json(std::get<CheckpointIndex>(again)) == text,
          "an index changes when it is written again");
  static_cast<void>(internal::meta_json(index.attributes));
}

void check_run_record(const CheckpointIndex& index) {
  try {
    const RunRecord record = run_record_of(index.attributes);
    Attributes again;
    put_run_record(again, record);
    static_cast<void>(run_record_of(again));
    static_cast<void>(grown_from(record, index.step));
  } catch (const RefusedError&) {
  }
  static_cast<void>(environment_differences(index.attributes, {}));
}

void check_file(const std::vector<std::byte>& bytes) {
  const BytesFile file(bytes);
  const auto read = read_index(file);
  if (const auto* const rejection = std::get_if<Rejection>(&read)) {
    require(!rejection->reason.empty(), "a rejection without a reason");
    return;
  }
  const auto& index = std::get<CheckpointIndex>(read);
  require(index.file_length == bytes.size(), "a file of another length was accepted");
  std::uint64_t covered = index.user_block;
  const auto tiled = internal::tile(index);
  for (const internal::Segment& segment : std::get<std::vector<internal::Segment>>(tiled)) {
    require(segment.offset == covered && segment.length <= bytes.size() - covered,
            "segments that do not tile the file");
    covered += segment.length;
  }
  require(covered == bytes.size(), "bytes that no digest covers");
  check_round_trip(index);
  check_run_record(index);
}

}}  // namespace holdfast::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace holdfast::test;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view text = input.substr(0, input.find(kSeparator));
  std::vector<std::byte> file = sealed_file(text);
  if (text.size() < size) edit(file, std::as_bytes(std::span(input.substr(text.size() + 1))));

  const MemoryBudget budget(budget_for(file.size()));
  check_file(file);
  for (const bool newer_minor : {false, true}) {
    const auto parsed = holdfast::internal::parse_index(text, newer_minor);
    const auto* const index = std::get_if<holdfast::CheckpointIndex>(&parsed);
    if (index == nullptr) continue;
    require(text.find('\0') == std::string_view::npos, "a NUL hides the rest of the index");
    check_round_trip(*index);
  }
  return 0;
}
