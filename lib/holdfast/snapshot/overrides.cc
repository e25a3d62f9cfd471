#include "holdfast/snapshot/overrides.h"

#include <algorithm>
#include <set>

namespace holdfast { inline namespace v0_2 {

std::vector<std::string> overridden(const std::vector<std::string>& options, const Overrides& overrides) {
  std::vector<std::string> found;
  for (const std::string& option : options) {
    const bool named = std::any_of(overrides.begin(), overrides.end(), [&](const std::string& name) {
      // The last part of a name is enough: `--override lr` means "optimizer.group.0.lr" as well.
      return option == name || (!name.empty() && option.ends_with("." + name));
    });
    if (named) found.push_back(option);
  }
  return found;
}

std::vector<std::string> accepted_differences(const Attributes& recorded, const Attributes& now,
                                              const Overrides& overrides) {
  // An option that only one of the two states has is a difference too.
  std::set<std::string> options;
  for (const Attributes* attributes : {&recorded, &now}) {
    if (!attributes->has(kStateOptions)) continue;
    const auto named = overridden(attributes->get_strings(kStateOptions), overrides);
    options.insert(named.begin(), named.end());
  }
  std::vector<std::string> differences;
  for (const std::string& name : options) {
    const Attribute* const before = recorded.find(name);
    const Attribute* const after = now.find(name);
    if (before && after && same_bits(before->value, after->value)) continue;
    differences.push_back(name + ": " + (before ? to_text(before->value) : "absent") + " → " +
                          (after ? to_text(after->value) : "absent"));
  }
  return differences;
}

}}  // namespace holdfast::v0_2
