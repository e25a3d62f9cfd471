// The three messages of a shared save (shared_write.h) as texts: a line that names message and save, the
// content, and a digest of both.
//
// Parsers are strict: only the exact text that the sender of this save would write is accepted. They allocate
// no more memory than the text has bytes, however hostile it is.
// Errors: nullopt. Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/format/shares.h"
#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// The beginning of every message.
struct SaveTag {
  AttemptNumber attempt = 0;
  std::uint64_t number = 0;
  std::int64_t step = 0;
};

// Rank 0 to all: the temporary file exists, write into it.
struct BeginMessage {
  Digest fingerprint;     // of rank 0's shares
  std::string temporary;  // a temporary name of the attempt
};
std::string to_text(const SaveTag& tag, const BeginMessage& message);
std::optional<BeginMessage> read_begin(const SaveTag& tag, std::string_view text);

// A rank to rank 0: its share is written, synced and closed, or why not.
struct ReportMessage {
  std::string failure;                    // empty: success
  std::optional<std::size_t> not_finite;  // a tensor of the share (WrittenShare)
  std::vector<Digest> digests;            // of the share's pieces
  std::vector<std::byte> sent;            // the bytes of share.sends, concatenated
  bool refused = false;                   // with `failure`: the rank did not even begin
};
std::string to_text(const SaveTag& tag, int rank, const ReportMessage& message);
// nullopt unless it has as many digests and bytes as the share.
std::optional<ReportMessage> read_report(const SaveTag& tag, int rank, const Share& share,
                                         std::string_view text);

// Rank 0 to all: how the save ended.
struct EndMessage {
  enum class Kind { committed, failed, superseded, alone };
  Kind kind = Kind::failed;
  std::uint64_t bytes = 0;  // of the file
  std::string text;         // the checkpoint's name, or the reason. `alone`: the save only begins
};
std::string to_text(const SaveTag& tag, const EndMessage& message);
std::optional<EndMessage> read_end(const SaveTag& tag, std::string_view text);

}}}  // namespace holdfast::v0_2::internal
