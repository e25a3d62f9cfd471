// Numbers, times and names as people write them: what is understood means the same when it is written again.
#include <cmath>

#include "holdfast/base/bits.h"
#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/snapshot/attributes.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/snapshot/tensor_spec.h"
#include "holdfast/store/names.h"
#include "holdfast/store/retention_text.h"
#include "memory_budget.h"

namespace holdfast::test { namespace {

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

void check_numbers(std::string_view text) {
  using namespace std::chrono_literals;
  if (const auto time = parse_duration(text)) {
    require(*time >= 0ns && *time <= 24h * 366 * 100, "a duration that cannot be");
    static_cast<void>(format_duration(*time));
  }
  if (const auto number = parse_int(text)) {
    require(parse_int(std::to_string(*number)) == number, "an integer that changes");
    static_cast<void>(format_count(*number));
  }
  if (const auto number = parse_double(text)) {
    require(std::isfinite(*number), "a number that is none");
    require(parse_double(shortest_decimal(*number)) == *number, "a number that changes");
    static_cast<void>(format_number(*number));
  }
  if (const auto number = double_from_bits_hex(text))
    require(bits_hex(*number) == in_lower_case(text), "bits that change");
  if (const auto digest = digest_from_hex(text)) require(to_hex(*digest) == text, "a digest that changes");
  if (const auto time = parse_utc(text)) {
    const auto again = parse_utc(format_utc(*time));
    require(again && *time - *again < 1s && *again <= *time, "a time that changes");
  }
}

void check_retention(std::string_view text) {
  try {
    const Retention keep = parse_retention(text);
    const std::string written = to_text(keep);
    require(to_text(parse_retention(written)) == written, "a retention that changes");
  } catch (const UsageError&) {
  }
}

void check_names(const std::string& text) {
  const std::string shown = printable(text);
  require(is_utf8(shown) && !has_control(shown) && shown.size() < 4 * 120 + 8, "a text that cannot be shown");
  const std::vector<TensorSpec> specs{{text, DType::uint8, {1}}, {"model/" + text, DType::uint8, {1}}};
  try {
    check_tensor_specs(specs);
    require(is_utf8(text) && text.size() <= 1024 && ("/" + text + "/").find("/../") == std::string::npos,
            "a name that cannot be stored");
  } catch (const RefusedError&) {
  }
  if (const auto id = parse_checkpoint_name(text))
    require(checkpoint_name(*id) == text, "two names for one file");
  if (const auto id = parse_damaged_name(text)) {
    const std::size_t plain = damaged_name(*id).size();
    const std::uint64_t nth = text.size() > plain + 1 ? std::stoull(text.substr(plain + 1)) : 1;
    require(damaged_name(*id, nth) == text, "two names for one damaged file");
  }
  if (const auto number = parse_claim_name(text))
    require(claim_name(*number) == text, "two claims of one number");
  if (const auto number = parse_state_name(text))
    require(state_name(*number) == text, "two states of one attempt");
}

}}  // namespace holdfast::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace holdfast::test;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const MemoryBudget budget(budget_for(size));
  check_numbers(text);
  check_retention(text);
  check_names(text);
  return 0;
}
