// What a mirror reads that others may have written: a listing of rclone, a claim's name, and its own record.
#include "holdfast/base/log.h"
#include "holdfast/mirror/home_record.h"
#include "holdfast/mirror/rclone_home.h"
#include "holdfast/mirror/rclone_list.h"
#include "memory_budget.h"

namespace holdfast::test { namespace {

void check_list(const std::string& text) {
  const auto list = rclone_list_from_json(text);
  if (!list) return;
  for (const RcloneEntry& entry : *list) {
    require(!entry.path.empty() && entry.path.size() <= text.size(), "a path that was not there");
    require(entry.bytes >= -1, "a size below nothing");
    if (const auto number = parse_store_claim(entry.path)) {
      require(*number > 0 && entry.path.starts_with(std::to_string(*number) + "."),
              "a claim with another number");
    }
  }
}

void check_record(const std::string& text) {
  const auto record = home_record_from_json(text);
  if (!record) return;
  const std::string written = to_json(*record);
  const auto again = home_record_from_json(written);
  require(again && again->claims == record->claims && again->newest == record->newest,
          "a record changes when it is written again");
}

}}  // namespace holdfast::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace holdfast::test;
  holdfast::set_log_level(holdfast::LogLevel::off);
  const std::string text(reinterpret_cast<const char*>(data), size);
  const MemoryBudget budget(budget_for(size));
  check_list(text);
  check_record(text);
  return 0;
}
