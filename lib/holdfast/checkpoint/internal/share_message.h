// The three messages of a shared save (shared_write.h), as texts: a line that says which message of which
// save it is, what it says, and a digest of all that.
//
// Reading is strict: what is not exactly what the sender of this very save would write is nothing, and no
// more memory is taken than the text has bytes, however hostile it is. Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/format/shares.h"
#include "holdfast/store/verifier.h"

namespace holdfast::inline v1::internal {

// What every message begins with.
struct SaveTag {
  AttemptNumber attempt = 0;
  std::uint64_t number = 0;
  std::int64_t step = 0;
};

// Rank 0 to all: the temporary file is there, write.
struct BeginMessage {
  Digest fingerprint;     // of rank 0's shares
  std::string temporary;  // a temporary name of the attempt
};
std::string to_text(const SaveTag& tag, const BeginMessage& message);
std::optional<BeginMessage> read_begin(const SaveTag& tag, std::string_view text);

// A rank to rank 0: its share is written, synced and closed; or why not.
struct ReportMessage {
  std::string failure;  // empty: done
  bool finite = true;
  std::vector<Digest> digests;  // of the share's pieces
  std::vector<std::byte> sent;  // the bytes of share.sends, one after the other
  bool refused = false;         // the failure is that it did not even begin
};
std::string to_text(const SaveTag& tag, int rank, const ReportMessage& message);
// Only with as many digests and bytes as the share has.
std::optional<ReportMessage> read_report(const SaveTag& tag, int rank, const Share& share,
                                         std::string_view text);

// Rank 0 to all: how it ended.
struct EndMessage {
  enum class Kind { committed, failed, superseded, alone };
  Kind kind = Kind::failed;
  std::uint64_t bytes = 0;  // of the file
  std::string text;         // the checkpoint's name, or the reason; `alone`: it is only beginning
};
std::string to_text(const SaveTag& tag, const EndMessage& message);
std::optional<EndMessage> read_end(const SaveTag& tag, std::string_view text);

}  // namespace holdfast::inline v1::internal
