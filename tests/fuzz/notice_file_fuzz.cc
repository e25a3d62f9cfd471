// What a notice file says: never no answer, never a time that is not ahead, never a text that steers a
// terminal.
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/interruption/notice_file.h"
#include "memory_budget.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace holdfast;
  using namespace holdfast::test;
  using namespace std::chrono_literals;
  const std::string_view content(reinterpret_cast<const char*>(data), size);
  const SteadyTime now{100h};
  const WallTime wall = *parse_utc("2025-06-01T12:00:00Z");

  const MemoryBudget budget(budget_for(size));
  const NoticeFile file = parse_notice_file(content, now, wall);
  if (!file.notice) {
    require(file.whole, "a notice was overheard");
    return 0;
  }
  const Notice& notice = *file.notice;
  require(!notice.text.empty() && notice.text.size() < 400, "a text of the wrong length");
  require(is_utf8(notice.text) && !has_control(notice.text), "a text that cannot be shown");
  require(notice.kind == NoticeKind::deadline || notice.kind == NoticeKind::checkpoint_now ||
              notice.kind == NoticeKind::at_risk,
          "a notice of another kind");
  if (notice.deadline) {
    require(*notice.deadline >= now && *notice.deadline <= now + 24h * 366, "a deadline that cannot be");
    require(notice.kind == NoticeKind::deadline, "a deadline for nothing");
  }
  return 0;
}
