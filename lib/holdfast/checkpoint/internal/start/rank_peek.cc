#include "holdfast/checkpoint/internal/start/rank_peek.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/start/run_start.h"
#include "holdfast/checkpoint/internal/start/start_peek.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

using nlohmann::json;

constexpr Duration kSlice = std::chrono::milliseconds(500);  // how often a wait looks at the signals

}  // namespace

json failure_of(const Error& error) {
  return {{"error", error.what()}, {"code", static_cast<int>(error.exit_code())}};
}

void throw_if_failed(const json& told, int rank) {
  if (!told.contains("error")) return;
  throw Error("rank " + std::to_string(rank) + ": " + told.value("error", std::string()),
              static_cast<ExitCode>(told.value("code", static_cast<int>(ExitCode::internal))));
}

json hear_at_start(Run& run, RankGroup& group, int rank, const char* name, Duration limit) {
  // Real time, because the other ranks are other processes.
  const SteadyTime end = Clock::real().now() + limit;
  while (true) {
    const Duration left = std::max<Duration>(end - Clock::real().now(), Duration::zero());
    if (auto heard = group.hear_within(rank, name, std::min(left, kSlice))) return *std::move(heard);
    const std::string who = "rank " + std::to_string(rank);
    if (run.monitor.stop_requested()) {
      throw Error("told to stop (" + run.monitor.reason() + ") while waiting for " + who +
                      " to resume; nothing was begun",
                  static_cast<ExitCode>(run.options.notices.exit_code_interrupted));
    }
    if (Clock::real().now() >= end) {
      throw Error(who + " did not send '" + name + "' within " + format_duration(limit) +
                      "; the newest checkpoint stands: start all ranks again",
                  ExitCode::interrupted);
    }
  }
}

std::optional<Peeked> peek_together(Engine& engine, RankGroup& group, int call) {
  const std::string text = kPeeked + (" " + std::to_string(call));
  std::optional<CheckpointHead> head;
  if (group.leads()) {
    telling_errors([&] { head = find_head(engine.run, engine.start.wait(), engine.start.finder()); },
                   [&](const Error& error) { group.tell(text.c_str(), failure_of(error)); });
    group.tell(text.c_str(), {{"fresh", !head},
                              {"name", head ? head->name : std::string()},
                              {"bytes", head ? head->file_bytes : 0},
                              {"head", head ? head->bytes.size() : 0}});
  } else {
    const json told =
        hear_at_start(engine.run, group, 0, text.c_str(), engine.run.options.start.mount_wait + kStartWait);
    throw_if_failed(told, 0);
    if (!told.value("fresh", true)) {
      head = {.name = told.value("name", std::string()),
              .file_bytes = told.value("bytes", std::uint64_t{0}),
              .bytes = std::vector<std::byte>(told.value("head", std::size_t{0}))};
    }
  }
  if (!head) return std::nullopt;
  group.channel().broadcast(head->bytes);
  return peeked_in(*std::move(head));
}

}}}  // namespace holdfast::v0_2::internal
