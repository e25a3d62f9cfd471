// What a run says about itself: state files, and the losses in a ledger.
#include <bit>
#include <cstring>

#include "holdfast/base/bits.h"
#include "holdfast/base/log.h"
#include "holdfast/checkpoint/receipt.h"
#include "holdfast/ledger/loss_ring.h"
#include "holdfast/store/run_state.h"
#include "memory_budget.h"
#include "support/ledger_lines.h"

namespace holdfast::test { namespace {

void check_state(const std::string& text) {
  const auto state = run_state_from_json(text);
  if (!state) return;
  require(state->attempt > 0, "a state of no attempt");
  const std::string written = to_json(*state);
  const auto again = run_state_from_json(written);
  require(again && to_json(*again) == written, "a state changes when it is written again");
}

void check_ledger(const std::string& text) {
  const auto lines = whole_lines(text);
  std::size_t total = 0;
  for (const std::string& line : lines) total += line.size() + 1;
  require(total <= text.size(), "lines that were not there");
  const auto losses = losses_in(lines);
  require(16 * losses.size() <= text.size(), "losses that were not there");
  Receipt receipt(losses, 5, false);
  for (const auto& [step, loss] : losses) receipt.compare(step, loss);
  receipt.close();
}

// What the ring writes, it reads.
void check_ring(const std::string& text) {
  static LossRing ring;
  std::map<std::int64_t, double> pushed;
  std::int64_t step = 0;
  for (std::size_t i = 0; i + 8 <= text.size() && i < 4096; i += 8) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, text.data() + i, sizeof bits);
    step += bits % 7 == 0 ? 2 : 1;
    const double loss = std::bit_cast<double>(bits);
    ring.push(step, loss);
    if (loss == loss) pushed[step] = loss;
  }
  std::vector<std::string> lines;
  ring.drain([&](const std::string& line) { lines.push_back(line); });
  const auto read = losses_in(lines);
  require(read.size() == pushed.size(), "losses lost in the ledger");
  for (const auto& [at, loss] : pushed) {
    require(read.contains(at) && bits_hex(read.at(at)) == bits_hex(loss), "a loss with other bits");
  }
}

}}  // namespace holdfast::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace holdfast::test;
  holdfast::set_log_level(holdfast::LogLevel::off);
  const std::string text(reinterpret_cast<const char*>(data), size);
  const MemoryBudget budget(budget_for(size));
  check_state(text);
  check_ledger(text);
  check_ring(text);
  return 0;
}
