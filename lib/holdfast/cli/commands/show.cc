#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/output/json_output.h"
#include "holdfast/cli/output/table.h"
#include "holdfast/snapshot/digested_tensors.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Json = nlohmann::ordered_json;

struct ShowRequest {
  std::filesystem::path file;
  bool json = false;
};

Json json_of(const AttributeValue& value) {
  // JSON has no NaN and no infinity, and a recorded loss may be either.
  if (const auto* const one = std::get_if<double>(&value)) return json_number(*one);
  if (const auto* const many = std::get_if<std::vector<double>>(&value)) {
    Json list = Json::array();
    for (const double item : *many) list.push_back(json_number(item));
    return list;
  }
  return std::visit([](const auto& plain) -> Json { return plain; }, value);
}

void print_checkpoint_as_json(const ShowRequest& options, const CheckpointIndex& index) {
  Json attributes = Json::object();
  for (const auto& [name, attribute] : index.attributes) {
    attributes[name] = {{"value", json_of(attribute.value)}, {"decides", attribute.role == Role::decides}};
  }
  Json tensors = Json::array();
  for (const IndexedTensor& tensor : index.tensors) {
    tensors.push_back({{"name", tensor.spec.name},
                       {"dtype", name_of(tensor.spec.dtype)},
                       {"shape", tensor.spec.shape},
                       {"offset", tensor.offset},
                       {"bytes", tensor.spec.bytes()},
                       {"digest", to_hex(tensor.digest)}});
  }
  Json digested = Json::array();
  for (const DigestedTensor& tensor : digested_tensors(index.attributes)) {
    digested.push_back({{"name", tensor.spec.name},
                        {"dtype", name_of(tensor.spec.dtype)},
                        {"shape", tensor.spec.shape},
                        {"digest", to_hex(tensor.digest)}});
  }
  print_json({{"file", shown(options.file)},
              {"step", index.step},
              {"state", to_hex(state_digest_of(index))},
              {"bytes", index.file_length},
              {"format_version", index.format_version},
              {"user_block", index.user_block},
              {"attribute_capacity", index.attribute_capacity},
              {"attributes", attributes},
              {"tensors", tensors},
              {"digested", digested}});
}

void print_text(const ShowRequest& options, const CheckpointIndex& index) {
  using enum Table::Align;
  std::uint64_t tensor_bytes = 0;
  for (const IndexedTensor& tensor : index.tensors) tensor_bytes += tensor.spec.bytes();

  const std::vector<DigestedTensor> digested = digested_tensors(index.attributes);
  std::set<std::string> attributes_of_digests;
  std::uint64_t digested_bytes = 0;
  for (const DigestedTensor& tensor : digested) {
    digested_bytes += tensor.spec.bytes();
    attributes_of_digests.insert(digest_attribute(tensor.spec.name));
  }

  std::cout << shown(options.file) << "\n\n";
  Table facts({left, left});
  facts.add({"step", format_count(index.step)});
  facts.add({"state", to_hex(state_digest_of(index))});
  facts.add({"size", format_bytes(index.file_length) + " (" + std::to_string(index.file_length) + " bytes)"});
  facts.add({"tensors", format_count(static_cast<std::int64_t>(index.tensors.size())) + ", " +
                            format_bytes(tensor_bytes)});
  if (!digested.empty()) {
    facts.add({"by digest alone", format_count(static_cast<std::int64_t>(digested.size())) + ", " +
                                      format_bytes(digested_bytes) + " (frozen; not in this file)"});
  }
  facts.add({"format", std::to_string(index.format_version) + ", user block of " +
                           std::to_string(index.user_block) + " bytes"});
  facts.print(std::cout, 2);

  // Cut, because one list of a thousand numbers would bury the others. --json has every value in full.
  for (const auto& [role, title] : {std::pair{Role::decides, "attributes that decide the next step"},
                                    std::pair{Role::record, "attributes for the record"}}) {
    Table table({left, left});
    for (const auto& [name, attribute] : index.attributes) {
      // Those are a list of their own below.
      if (attribute.role == role && !attributes_of_digests.contains(name))
        table.add({name, printable(to_text(attribute.value), 100)});
    }
    if (table.empty()) continue;
    std::cout << '\n' << title << '\n';
    table.print(std::cout, 2);
  }

  const auto print_tensors = [](const char* title, const auto& tensors) {
    if (tensors.empty()) return;
    std::cout << '\n' << title << '\n';
    Table table({left, left, left, right, left});
    for (const auto& tensor : tensors) {
      table.add({tensor.spec.name, std::string(name_of(tensor.spec.dtype)), shape_text(tensor.spec.shape),
                 format_bytes(tensor.spec.bytes()), to_hex(tensor.digest)});
    }
    table.print(std::cout, 2);
  };
  print_tensors("tensors", index.tensors);
  print_tensors("frozen tensors, by digest alone: a resume needs a program that has loaded them", digested);
}

int run_show(const ShowRequest& options) {
  // Header and index alone, so a file of any size shows at once.
  const CheckpointIndex index = open_index(options.file).index;
  if (options.json) {
    print_checkpoint_as_json(options, index);
  } else {
    print_text(options, index);
  }
  return 0;
}

constexpr char kShowFooter[] =
    R"(Reads only header and index; `holdfast verify` reads every byte. `state` is the digest that the run printed as state=.

Example:
  holdfast show /mnt/ckpt/run1/step-000000001200-a0001.h5)";

}  // namespace

void add_show(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ShowRequest>();
  CLI::App* const command = app.add_subcommand("show", "Show a checkpoint's attributes, tensors and digests");
  command->add_option("FILE", options->file, "the checkpoint")->required();
  command->add_flag("--json", options->json, "print one JSON object, with every value in full");
  command->footer(kShowFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_show(*options); }; });
}

}}  // namespace holdfast::v0_2
