#include "holdfast/cli/run/ledger_tail.h"

#include <exception>
#include <span>

#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::uint64_t kMost = 1 << 20;

}  // namespace

LedgerTail::News LedgerTail::read_new_lines() {
  News news;
  try {
    const auto run = FileSystem::real().open_directory(directory_, false);
    if (!run) return news;
    auto words = attempt_words(*run, kHighestNumber);
    if (words.empty()) return news;
    news.newest = std::move(words.front());
    news.another = news.newest.attempt != attempt_;
    // Another attempt has a ledger of its own.
    if (news.another) read_ = 0;
    attempt_ = news.newest.attempt;
    const auto file = run->open(ledger_name(attempt_), OpenMode::read);
    if (!file) return news;
    const std::uint64_t size = file->size();
    // Only the newest lines matter. The first may be cut in two; the reader skips it as malformed.
    if (size > read_ + kMost) read_ = size - kMost;
    if (size <= read_) return news;
    std::string text(size - read_, '\0');
    text.resize(file->read_at(std::as_writable_bytes(std::span(text)), read_));
    read_ += text.size();
    news.lines = std::move(text);
  } catch (const std::exception&) {  // the next look
  }
  return news;
}

}}  // namespace holdfast::v0_2
