#include "holdfast/cli/differing_tensors.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/examine.h"
#include "holdfast/cli/json_output.h"
#include "holdfast/cli/table.h"

namespace holdfast { inline namespace v0_2 {

void DifferingTensors::add_only_in(const char* file, const std::string& name, const TensorSpec& spec) {
  others.push_back(std::string("only in the ") + file + ": " + printable(name) + "  " + spec_text(spec));
}

void DifferingTensors::add_other_spec(const std::string& name, const TensorSpec& first,
                                      const TensorSpec& second) {
  others.push_back(printable(name) + ": " + spec_text(first) + " in the first, " + spec_text(second) +
                   " in the second");
}

void DifferingTensors::print(const char* what, bool all) const {
  for (const std::string& line : others) std::cout << "  " << line << '\n';
  std::cout << what << ": " << changed.size() << " of " << total << " differ in value";
  if (!others.empty()) std::cout << ", " << others.size() << " in name, type or shape";
  std::cout << '\n';
  if (changed.empty()) return;
  using enum Table::Align;
  Table table({left, left, left, left, left, right});
  const auto add = [&](const char* label, const DifferingTensor& each) {
    const TensorDifference& d = each.difference;
    table.add({label, each.name, spec_text(each.spec),
               format_count(static_cast<std::int64_t>(d.different)) + " of " +
                   format_count(static_cast<std::int64_t>(d.elements)) + ", from element " +
                   std::to_string(d.first),
               "max |a-b| " + format_number(d.largest),
               d.ulp ? std::to_string(*d.ulp) + " ulp" : std::string()});
  };
  add("first", changed.front());
  // `largest` is infinite where a value is NaN, and never NaN itself, so this comparison is an order.
  add("worst", *std::max_element(changed.begin(), changed.end(),
                                 [](const DifferingTensor& a, const DifferingTensor& b) {
                                   return a.difference.largest < b.difference.largest;
                                 }));
  if (all) {
    for (const DifferingTensor& each : changed) add("", each);
  }
  table.print(std::cout, 2);
}

void DifferingTensors::print_as_json(bool equal, const nlohmann::ordered_json& attributes) const {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const DifferingTensor& each : changed) {
    const TensorDifference& d = each.difference;
    list.push_back({{"name", each.name},
                    {"elements", d.elements},
                    {"different", d.different},
                    {"first", d.first},
                    {"largest", json_number(d.largest)},
                    {"ulp", d.ulp ? Json(*d.ulp) : Json(nullptr)}});
  }
  print_json({{"schema", kJsonSchema},
              {"equal", equal},
              {"tensors", total},
              {"changed", list},
              {"other", others},
              {"attributes", attributes}});
}

}}  // namespace holdfast::v0_2
