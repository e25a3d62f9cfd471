// The store's interface to a file whose format it does not know. The checkpoint side implements it with the
// format's reader, tests with a few bytes.
//
// Errors: damage is a return value; an error of the operating system is an IoError.
// Threads: may be called from any thread, one call per file at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 {

using AttemptNumber = std::uint64_t;

// For every earlier attempt, the last step that this history continued from.
using Ancestry = std::map<AttemptNumber, std::int64_t>;

// The starting points that a user chose in this history, oldest first (branch.h).
using Branches = std::vector<std::string>;

// Values measured along a history: metric → step → value. A value belongs to the state at that step,
// whichever file records it; a file is often written before its state was measured.
using Metrics = std::map<std::string, std::map<std::int64_t, double>>;

struct Verdict {
  enum class Kind { good, damaged, newer_format };
  Kind kind = Kind::good;
  std::string reason = {};  // for people, unless good
  std::int64_t step = 0;    // from the content; must agree with the name
  AttemptNumber attempt = 0;
  Ancestry ancestry = {};
  Branches branches = {};
  bool finite = true;  // loss and parameters were finite when it was written
  Metrics metrics = {};
  std::optional<std::int64_t> unix_seconds = {};  // when the state was staged, by that machine's wall clock
};

class HOLDFAST_EXPORT Verifier {
 public:
  enum class Depth {
    head,  // header and index: cheap
    full,  // every byte
  };
  virtual ~Verifier() = default;
  // `uncached` bypasses the page cache and reads the device.
  virtual Verdict inspect(const File& file, Depth depth, bool uncached) = 0;
};

}}  // namespace holdfast::v0_2
