#include "holdfast/checkpoint/internal/start/rank_options.h"

#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/name_list.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr std::size_t kShownOptions = 8;

// By name, as people read them: doubles have all digits.
struct Deciding {
  std::map<std::string, std::string> options;
  std::map<std::string, std::string> others;
};

Deciding deciding(SnapshotSource& source) {
  const Attributes attributes = source.attributes();
  std::set<std::string> options;
  if (attributes.has(kStateOptions)) {
    const auto& names = attributes.get_strings(kStateOptions);
    options.insert(names.begin(), names.end());
  }
  Deciding found{.options = {}, .others = source.value_digests()};
  for (const auto& [name, attribute] : attributes) {
    if (attribute.role != Role::decides) continue;
    (options.contains(name) ? found.options : found.others).emplace(name, to_text(attribute.value));
  }
  return found;
}

Deciding heard(std::string_view text) {
  try {
    const auto told = nlohmann::json::parse(text);
    return {.options = told.at("options"), .others = told.at("others")};
  } catch (const nlohmann::json::exception& error) {
    throw IoError("receive", "the options", EIO,
                  "rank 0 sent something else (" + std::string(error.what()) + ")");
  }
}

std::vector<std::string> names_of_different(const std::map<std::string, std::string>& here,
                                            const std::map<std::string, std::string>& there) {
  std::set<std::string> names;
  for (const auto& [name, value] : here) names.insert(name);
  for (const auto& [name, value] : there) names.insert(name);
  std::erase_if(names, [&](const std::string& name) {
    const auto one = here.find(name), other = there.find(name);
    return one != here.end() && other != there.end() && one->second == other->second;
  });
  return {names.begin(), names.end()};
}

}  // namespace

std::string options_text(SnapshotSource& source) {
  const Deciding own = deciding(source);
  // A text that is no UTF-8 is compared as what every rank makes of it.
  return nlohmann::json{{"options", own.options}, {"others", own.others}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void check_options(SnapshotSource& source, int rank, std::string_view of_rank_0, const Overrides& overrides) {
  const Deciding theirs = heard(of_rank_0);
  const Deciding own = deciding(source);
  const std::string who = "rank " + std::to_string(rank);
  std::vector<std::string> refused;
  std::vector<std::string> accepted;
  for (const std::string& name : names_of_different(own.options, theirs.options)) {
    const auto on = [&](const Deciding& side) {
      const auto found = side.options.find(name);
      return found == side.options.end() ? "not set" : found->second;
    };
    const std::string text = name + " is " + on(own) + " on " + who + " and " + on(theirs) + " on rank 0";
    (overridden({name}, overrides).empty() ? refused : accepted).push_back(text);
  }
  if (!refused.empty()) {
    throw RefusedError("refused: the ranks would not train alike: " + name_list(refused, kShownOptions) +
                       ". Start all with the same options, or accept a difference: "
                       "CheckpointerOptions::start.overrides names what may differ");
  }
  if (!accepted.empty()) {
    log_warning("the ranks differ, as an override accepts: {}", name_list(accepted, kShownOptions));
  }
  if (const auto others = names_of_different(own.others, theirs.others); !others.empty()) {
    log_warning("{} has other values than rank 0, whose values each checkpoint holds for all ranks: {}", who,
                name_list(others, kShownOptions));
  }
}

}}}  // namespace holdfast::v0_2::internal
