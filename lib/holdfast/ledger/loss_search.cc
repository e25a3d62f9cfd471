#include "holdfast/ledger/loss_search.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/ledger/loss_ring.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::size_t kPiece = 64 << 10;  // longer than any line: a line of losses has at most 17 KiB
// Bounds the time of a start if the ledger has few losses among many other lines.
constexpr std::uint64_t kMostScanned = 16 << 20;

// Up to kPiece bytes of the file from `at`, cut to whole lines.
class Piece {
 public:
  Piece() : bytes_(kPiece) {}

  // Returns false at the end of the file. Drops the first line unless `whole_first_line`, because that line
  // may have begun before `at`.
  bool read(const File& file, std::uint64_t at, bool whole_first_line) {
    const std::size_t got = file.read_at(bytes_, at);
    std::string_view text(reinterpret_cast<const char*>(bytes_.data()), got);
    if (got == 0) return false;
    const std::size_t last = text.rfind('\n');
    // The first line may be the end of one that began earlier.
    const std::size_t first = whole_first_line ? 0 : text.find('\n') + 1;  // npos + 1 is 0
    // Without any newline the piece is skipped whole, so that the search goes on.
    next_ = at + (last == std::string_view::npos ? got : last + 1);
    lines_ = last == std::string_view::npos ? std::string_view() : text.substr(first, last + 1 - first);
    return true;
  }

  // Calls `take` with each line until it returns false.
  void each(const std::function<bool(const std::string& line)>& take) const {
    for (std::string_view rest = lines_; !rest.empty();) {
      const std::size_t end = rest.find('\n');
      if (!take(std::string(rest.substr(0, end)))) return;
      rest.remove_prefix(end + 1);
    }
  }
  // Start of the next piece. A line starts there, unless one line is longer than a piece.
  std::uint64_t next() const { return next_; }

 private:
  std::vector<std::byte> bytes_;
  std::string_view lines_;
  std::uint64_t next_ = 0;
};

// The first step of the first line of losses in the piece.
std::optional<std::int64_t> first_step_in(const Piece& piece) {
  std::optional<std::int64_t> step;
  piece.each([&](const std::string& line) {
    const auto losses = losses_in({line});
    if (!losses.empty()) step = losses.begin()->first;
    return !step;
  });
  return step;
}

// An offset that lies before all wanted steps. If a piece has no losses, the search takes the earlier half.
std::uint64_t place_before(const File& file, std::int64_t step, Piece& piece) {
  std::uint64_t place = 0;
  std::uint64_t end = file.size();
  // Steps only grow in a ledger, so a binary search finds the place in a few reads.
  while (end - place > kPiece) {
    const std::uint64_t middle = place + (end - place) / 2;
    const auto first = piece.read(file, middle, false) ? first_step_in(piece) : std::nullopt;
    if (first && *first <= step) {
      place = middle;
    } else {
      end = middle;
    }
  }
  return place;
}

}  // namespace

std::map<std::int64_t, double> losses_after(const File& ledger, std::int64_t step, std::size_t most) {
  Piece piece;
  const std::uint64_t begin = place_before(ledger, step, piece);
  std::map<std::int64_t, double> found;
  bool at_line = begin == 0;
  for (std::uint64_t at = begin; at - begin < kMostScanned && found.size() < most; at = piece.next()) {
    if (!piece.read(ledger, at, at_line)) break;
    at_line = true;
    piece.each([&](const std::string& line) {
      for (const auto& [at_step, loss] : losses_in({line})) {
        if (at_step > step && found.size() < most) found.emplace(at_step, loss);
      }
      return found.size() < most;
    });
  }
  return found;
}

}}  // namespace holdfast::v0_2
