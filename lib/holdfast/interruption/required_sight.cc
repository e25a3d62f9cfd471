#include "holdfast/interruption/required_sight.h"

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/interruption/cloud_providers.h"
#include "holdfast/interruption/internal/shown_text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(20);

struct Look {
  bool sees = false;
  bool polled = true;  // false: the first poll has not ended
  bool never = false;  // no later poll and no later start on this machine can see
  std::string why = {};
};

bool is_provider(std::string_view name) { return find_provider(name) != nullptr; }

// Until it has looked at the machine, the source "cloud" may become any provider's.
bool may_be(std::string_view source, const std::string& required) {
  return source == required || (required == "cloud" && is_provider(source)) ||
         (source == "cloud" && is_provider(required));
}

Look look_at(const Source& source) {
  // Signals and files need no service, so they always see.
  if (!source.may_block()) return {.sees = true};
  const SourceFigures figures = source.figures();
  Look look{.sees = figures.polls > figures.failures && figures.blind_now == Duration::zero()};
  look.polled = figures.polls > 0 || !figures.why.empty();
  // A source that explains why it never polls will not see later either.
  look.never = figures.polls == 0 && look.polled;
  look.why = look.polled ? figures.why : "it has not come to an answer yet";
  return look;
}

Look look_for(const Monitor& monitor, const std::string& required) {
  Look found{
      .never = true,
      .why =
          "there is no such source here; HOLDFAST_SOURCES and AWS_EC2_METADATA_DISABLED can switch one "
          "off"};
  for (const auto& source : monitor.sources()) {
    if (!may_be(source->name(), required)) continue;
    Look look = look_at(*source);
    if (look.sees) return look;
    found = std::move(look);
  }
  return found;
}

std::string remedy(const std::string& required) {
  if (!is_provider(required)) return "make it answer, or start without requiring it";
  return "make it answer, name it in HOLDFAST_SOURCES if this machine is not recognised, or start without "
         "requiring it";
}

}  // namespace

void await_sight(const Monitor& monitor, const std::vector<std::string>& required,
                 const std::function<bool()>& go_on, const SightPatience& patience) {
  // The sources' threads use the machine's clock, so a test's clock would not match.
  Clock& clock = Clock::real();
  const SteadyTime begin = clock.now();
  for (const std::string& name : required) {
    Look look = look_for(monitor, name);
    // Waits only as long as it makes sense: a start that can never succeed is refused at once.
    while (!look.sees) {
      if (!go_on()) return;
      const Duration limit = look.polled ? patience.retries : patience.first_poll;
      if (look.never || clock.now() - begin >= limit) {
        const std::string words = "the interruption source " + internal::shown(name, 40) +
                                  " is required and does not see (" + look.why + "); ";
        // Supervisors never repeat a start that ends with 78. They repeat one with 75, and the service may
        // answer then.
        if (look.never) throw RefusedError("the start is refused: " + words + remedy(name));
        throw Error("not started yet: " + words + "start again when it answers, or " + remedy(name),
                    ExitCode::interrupted);
      }
      clock.sleep_for(kLook);
      look = look_for(monitor, name);
    }
    log_info("the interruption source {} is required, and sees", name);
  }
}

}}  // namespace holdfast::v0_2
