#include "holdfast/cli/trial/trial_story.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include "holdfast/base/name_list.h"
#include "holdfast/base/text.h"
#include "holdfast/cli/output/table.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::size_t kShownTensors = 8;
constexpr std::size_t kShownAttributes = 20;
constexpr char kAttributeForm[] = "attribute";

// What it printed after that step.
std::string printed_after(const TrialLife& life, const TrialStep& step) {
  if (step.output < 0 || step.output > static_cast<std::int64_t>(life.output.size())) return {};
  return life.output.substr(static_cast<std::size_t>(step.output));
}

constexpr std::int64_t kForm = std::numeric_limits<std::int64_t>::max();

// A step after which a tensor or an attribute is not what it was.
struct Change {
  std::int64_t step = 0;
  std::int64_t stood_still = 0;  // steps before; kForm if the form of the state changed
  std::string name;
};

std::string part_of(const std::string& name) { return name.substr(0, name.find_first_of("/.")); }

// The first change of form of each part, in the order of steps. Then, of each tensor and attribute, the
// change before which it had stood still longest; the longest first.
std::vector<Change> notable_changes(const TrialLife& straight) {
  const std::int64_t first = straight.steps.front().step;
  std::map<std::string, TrialValue> known;
  std::map<std::string, Change> best;
  for (const TrialValue& value : straight.values) {
    TrialValue& before = known[value.name];
    // The first line has everything. What comes with the second step's is new.
    if (value.step > first) {
      const bool form = before.form != value.form;
      const std::int64_t since = form ? kForm : value.step - before.step;
      Change& change = best[value.name];
      if (since > change.stood_still) change = {value.step, since, value.name};
    }
    before = value;
  }
  std::vector<Change> changes;
  std::map<std::string, Change> forms;  // of each part: its other changes of form would take all lives
  for (const auto& [name, change] : best) {
    if (change.stood_still < kForm) {
      if (change.stood_still > 2) changes.push_back(change);
      continue;
    }
    Change& earliest = forms.try_emplace(part_of(name), change).first->second;
    if (change.step < earliest.step) earliest = change;
  }
  for (const auto& [part, change] : forms) changes.push_back(change);
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::pair(-a.stood_still, a.step) < std::pair(-b.stood_still, b.step);
  });
  return changes;
}

class Moments {
 public:
  Moments(const TrialLife& straight, std::size_t most)
      : first_(straight.steps.front().step), last_(straight.steps.back().step), most_(most) {}

  bool full() const { return moments_.size() >= most_; }
  std::int64_t at(double part) const {
    return first_ + static_cast<std::int64_t>(part * static_cast<double>(last_ - first_));
  }
  // A step must remain to be compared after the save, and the program must not be told to stop first.
  void add(const std::string& name, std::int64_t save_at, std::int64_t kill_at) {
    if (full() || save_at < first_ || save_at >= last_) return;
    moments_.push_back({name, save_at, std::clamp(kill_at, save_at, last_ - 1)});
  }
  // Unless a life resumes there already.
  void add_new(const std::string& name, std::int64_t save_at) {
    const bool known = std::any_of(moments_.begin(), moments_.end(),
                                   [&](const TrialMoment& other) { return other.save_at == save_at; });
    if (!known) add(name, save_at, save_at + 2);
  }
  // Between that step and the resumption before it, or the first step.
  std::int64_t middle_before(std::int64_t step) const {
    std::int64_t from = first_;
    for (const TrialMoment& other : moments_) {
      if (other.save_at < step) from = std::max(from, other.save_at);
    }
    return (from + step) / 2;
  }
  std::vector<TrialMoment> take() { return std::move(moments_); }

 private:
  const std::int64_t first_, last_;
  const std::size_t most_;
  std::vector<TrialMoment> moments_;
};

using Values = std::map<std::string, std::pair<std::string, std::string>>;  // name to form and value

Values values_after(const TrialLife& life, std::int64_t step) {
  Values values;
  for (const TrialValue& value : life.values) {
    if (value.step > step) break;
    if (value.form.empty()) {
      values.erase(value.name);
    } else {
      values[value.name] = {value.form, value.value};
    }
  }
  return values;
}

std::string differing_values(const TrialLife& straight, const TrialLife& resumed, std::int64_t step) {
  using enum Table::Align;
  const Values expected = values_after(straight, step), seen = values_after(resumed, step);
  std::vector<std::string> tensors;
  Table attributes({left, left, left});
  std::size_t all_tensors = 0, differing = 0;
  const auto compare = [&](const std::string& name, const Values::mapped_type* ours,
                           const Values::mapped_type* theirs) {
    const bool attribute = (ours != nullptr ? ours : theirs)->first == kAttributeForm;
    if (!attribute) ++all_tensors;
    if (ours != nullptr && theirs != nullptr && *ours == *theirs) return;
    if (attribute) {
      const auto text = [](const Values::mapped_type* one) { return one == nullptr ? "-" : one->second; };
      if (++differing <= kShownAttributes) attributes.add({name, text(ours), text(theirs)});
    } else {
      const auto form = [](const Values::mapped_type* one) {
        return one == nullptr ? "missing" : one->first;
      };
      const bool same_form = form(ours) == form(theirs);
      tensors.push_back(same_form ? name : name + " (" + form(ours) + ", resumed: " + form(theirs) + ")");
    }
  };
  for (const auto& [name, value] : expected) {
    const auto other = seen.find(name);
    compare(name, &value, other == seen.end() ? nullptr : &other->second);
  }
  for (const auto& [name, value] : seen) {
    if (!expected.contains(name)) compare(name, nullptr, &value);
  }
  std::ostringstream out;
  if (!tensors.empty()) {
    out << "\n  tensors: " << format_count(std::ssize(tensors)) << " of "
        << format_count(static_cast<std::int64_t>(all_tensors))
        << " differ after this step: " << name_list(tensors, kShownTensors);
  }
  if (differing > 0) {
    std::ostringstream table;
    attributes.print(table, 4);
    std::string rows = table.str();
    rows.pop_back();
    out << "\n  attributes that differ after this step (straight, resumed):\n" << rows;
    if (differing > kShownAttributes) out << "\n    and " << differing - kShownAttributes << " more";
  }
  const std::string text = out.str();
  return text.empty() ? "\n  every tensor and attribute of the state is equal after this step" : text;
}

}  // namespace

std::vector<TrialMoment> moments_of(const TrialLife& straight, std::size_t most) {
  constexpr double kGoldenPart = 0.618033988749895;  // its multiples spread evenly, however many are taken
  Moments moments(straight, most);
  const std::int64_t third = moments.at(1.0 / 3), half = moments.at(0.5), late = moments.at(0.9);
  // The first kill leaves the steps after the save to compute again, the second one leaves none.
  moments.add("in the middle", third, half);
  moments.add("right after a save", half, half);
  moments.add("late", late, late + 2);
  const std::vector<TrialStep>& steps = straight.steps;
  // Not the last step, because one must remain to be compared.
  for (std::size_t i = 1; i + 1 < steps.size(); ++i) {
    if (steps[i].epoch == steps[i - 1].epoch) continue;
    moments.add("at an epoch's end", steps[i - 1].step, steps[i].step);
    break;
  }
  for (const Change& change : notable_changes(straight)) {
    moments.add_new("right after a change of " + change.name, change.step);
    // What only the steps before it need is read by no life that resumes after it.
    if (change.stood_still == kForm) {
      moments.add_new("before a change of " + change.name, moments.middle_before(change.step));
    }
  }
  for (int i = 1; !moments.full() && i < 100; ++i) {
    moments.add_new("at another step", moments.at(std::fmod(i * kGoldenPart, 1.0)));
  }
  return moments.take();
}

std::string difference(const TrialLife& straight, const TrialLife& resumed, std::int64_t resumed_at,
                       bool with_output) {
  const auto expected = std::find_if(straight.steps.begin(), straight.steps.end(),
                                     [&](const TrialStep& step) { return step.step == resumed_at + 1; });
  if (resumed.steps.empty()) return "the resumed life took no step";
  if (resumed.steps.front().step != resumed_at + 1) {
    return "the next life began at step " + format_count(resumed.steps.front().step) + ", not at step " +
           format_count(resumed_at + 1);
  }
  auto seen = resumed.steps.begin();
  for (auto step = expected; step != straight.steps.end(); ++step, ++seen) {
    const std::string number = "step " + format_count(step->step);
    if (seen == resumed.steps.end()) return number + ": the resumed life ended before it";
    const char* const what = seen->loss != step->loss     ? ": the loss differs"
                             : seen->state != step->state ? ": the loss is equal, the state differs"
                             : seen->epoch != step->epoch ? ": the epoch of the data differs"
                                                          : nullptr;
    if (what != nullptr) return number + what + differing_values(straight, resumed, step->step);
  }
  if (seen != resumed.steps.end()) return "the resumed life took more steps than the straight one";
  if (with_output && printed_after(straight, *expected) != printed_after(resumed, resumed.steps.front())) {
    return "standard output differs after step " + format_count(resumed_at + 1);
  }
  return {};
}

}}  // namespace holdfast::v0_2
