// A checkpoint format of a few KiB for tests of the store and the mirror, which must not know the real one:
// a head of one 4 KiB block that says what the file is, then a body that follows from (step, attempt) alone,
// so that a test can tell whether what it reads is what was written.
//
// Threads: ToyVerifier: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/store/checkpoint_store.h"
#include "holdfast/store/copy_verifier.h"

namespace holdfast::test {

inline constexpr std::uint64_t kToyBlock = 4096;

// What an attempt goes on with.
struct History {
  void go_on_from(const Selection& selection) {
    ancestry.clear();
    step = 0;
    if (!selection.newest) return;
    ancestry = selection.newest->ancestry;
    ancestry[selection.newest->attempt] = selection.newest->step;
    step = selection.newest->step;
  }
  Ancestry ancestry;
  std::int64_t step = 0;
};

struct Toy {
  int version = 1;  // 2 and more: of a newer format
  std::int64_t step = 0;
  AttemptNumber attempt = 0;
  Ancestry ancestry = {};
  bool finite = true;
  std::uint64_t body_blocks = 1;
  Metrics metrics = {};  // a few
  std::optional<std::int64_t> unix_seconds = {};
};

std::vector<std::byte> toy_bytes(const Toy& toy);
// Writes it as the format does: the body first, the head last.
void write_toy(File& file, const Toy& toy);
CommitRequest toy_request(const Toy& toy);

class ToyVerifier final : public CopyVerifier {
 public:
  struct Question {
    std::int64_t step;  // -1: unreadable
    Depth depth;
    bool uncached;
  };

  Verdict inspect(const File& file, Depth depth, bool uncached) override;
  std::unique_ptr<ArrivingCopy> expect_copy(const File& file) override;

  std::vector<Question> asked;
  // Called first; what it returns, if anything, is the answer.
  std::function<std::optional<Verdict>(const Question&)> answer;
};

}  // namespace holdfast::test
