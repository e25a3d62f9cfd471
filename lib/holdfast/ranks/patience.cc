#include "holdfast/ranks/patience.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// How soon a waiting rank notices a shortened patience. The channel checks once a second whether the awaited
// rank is gone, so a slice must be longer.
constexpr Duration kSlice = std::chrono::milliseconds(1500);

}  // namespace

std::optional<std::string> hear_within(RankChannel& channel, int rank, const std::string& name,
                                       Duration slice) {
  const SteadyTime asked = Clock::real().now();
  try {
    return channel.hear(rank, name, slice);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    // A timeout takes the whole slice. An earlier exception means that the rank is lost.
    if (Clock::real().now() - asked < slice) throw;
    return std::nullopt;
  }
}

std::string hear_patiently(RankChannel& channel, Clock& clock, int rank, const std::string& name,
                           Duration limit, const Patience* patience) {
  const SteadyTime began = clock.now();
  Duration waited{};  // by the channel's clock
  while (true) {
    // In slices: the patience may become shorter while this waits, when a deadline is announced.
    const Duration slice = std::clamp(limit - waited, Duration::zero(), kSlice);
    if (auto text = hear_within(channel, rank, name, slice)) return *std::move(text);
    waited += slice;
    const SteadyTime now = clock.now();
    // Either clock ends the wait: a test sets `clock` forward, and the channel waits by the machine's.
    if (waited >= limit || now - began >= limit || (patience != nullptr && now >= patience->end())) {
      throw Error("no answer within " + format_duration(std::max(waited, now - began)),
                  ExitCode::interrupted);
    }
  }
}

}}  // namespace holdfast::v0_2
