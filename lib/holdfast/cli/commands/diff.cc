#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/files/metered_file.h"
#include "holdfast/cli/output/color.h"
#include "holdfast/cli/output/json_output.h"
#include "holdfast/cli/output/progress.h"
#include "holdfast/cli/output/table.h"
#include "holdfast/cli/weights/differing_tensors.h"
#include "holdfast/cli/weights/weights_diff.h"
#include "holdfast/snapshot/digested_tensors.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Json = nlohmann::ordered_json;

struct DiffRequest {
  std::filesystem::path a;
  std::filesystem::path b;
  bool all = false;
  double read_limit = 0;
  std::string color = "auto";
  bool json = false;
};

// Reads and verifies one tensor.
std::shared_ptr<Snapshot> read_tensor(const File& file, const Opened& from, const std::filesystem::path& path,
                                      const std::string& name) {
  // Verified while it is read: a difference that damage has made must not be shown.
  auto read = read_tensors(file, from.index, [&](const TensorSpec& spec) { return spec.name == name; });
  if (const auto* const rejection = std::get_if<Rejection>(&read)) {
    throw Error(shown(path) + ": damaged: " + rejection->reason, ExitCode::unreadable);
  }
  return std::get<std::shared_ptr<Snapshot>>(read);
}

class Comparison {
 public:
  Comparison(const DiffRequest& options, Opened a, Opened b)
      : options_(options), a_(std::move(a)), b_(std::move(b)), limit_(options.read_limit) {
    in_a_ = list(a_.index, &order_);
    in_b_ = list(b_.index, nullptr);
    tensors_.total = in_a_.size();
  }

  int run() {
    compare_tensor_lists();
    different_ = tensors_.any();
    if (options_.json) return end_in_json();
    tensors_.print("tensors", options_.all);
    print_attributes(Role::decides, "attributes that differ");
    // Nearly every two files differ in them: they hold times, hosts and the environment.
    if (options_.all) print_attributes(Role::record, "records that differ (they decide nothing)");
    const Paint paint = paint_for(options_.color);
    std::cout << (different_ ? paint(Color::warning, "different") : paint(Color::good, "equal")) << '\n';
    return static_cast<int>(different_ ? ExitCode::difference : ExitCode::complete);
  }

 private:
  struct Listed {
    TensorSpec spec;
    Digest digest;
    bool stored = true;  // false: recorded by digest alone
  };

  static std::map<std::string, Listed> list(const CheckpointIndex& index, std::vector<std::string>* order) {
    std::map<std::string, Listed> listed;
    const auto add = [&](const TensorSpec& spec, const Digest& digest, bool stored) {
      const bool fresh = listed.try_emplace(spec.name, Listed{spec, digest, stored}).second;
      if (fresh && order != nullptr) order->push_back(spec.name);
    };
    for (const IndexedTensor& tensor : index.tensors) add(tensor.spec, tensor.digest, true);
    for (const DigestedTensor& tensor : digested_tensors(index.attributes)) {
      add(tensor.spec, tensor.digest, false);
    }
    return listed;
  }

  // Attributes that decide and differ, and with --all the records.
  int end_in_json() {
    Json attributes = Json::array();
    for (const Role role : {Role::decides, Role::record}) {
      if (role == Role::record && !options_.all) continue;
      for (const std::string& name : differing_attributes(role)) {
        const auto text = [&](const Attribute* attribute) {
          return attribute == nullptr ? Json(nullptr) : Json(to_text(attribute->value));
        };
        attributes.push_back({{"name", name},
                              {"decides", role == Role::decides},
                              {"a", text(a_.index.attributes.find(name))},
                              {"b", text(b_.index.attributes.find(name))}});
        different_ |= role == Role::decides;
      }
    }
    tensors_.print_as_json(!different_, attributes);
    return static_cast<int>(different_ ? ExitCode::difference : ExitCode::complete);
  }

  // To read: every tensor whose digests differ, from both files.
  std::uint64_t bytes_to_read() const {
    std::uint64_t bytes = 0;
    for (const auto& [name, tensor] : in_a_) {
      const auto found = in_b_.find(name);
      if (found != in_b_.end() && to_read(tensor, found->second)) bytes += 2 * tensor.spec.bytes();
    }
    return bytes;
  }

  static bool to_read(const Listed& ours, const Listed& theirs) {
    return ours.spec == theirs.spec && ours.digest != theirs.digest && ours.stored && theirs.stored;
  }

  void compare_tensor_lists() {
    Progress progress("comparing", bytes_to_read());
    // One limit and one progress for both files: they may lie on the same volume.
    const MeteredFile file_a(*a_.file, limit_, progress.done());
    const MeteredFile file_b(*b_.file, limit_, progress.done());
    for (const std::string& name : order_) {
      const Listed& ours = in_a_.at(name);
      const auto found = in_b_.find(name);
      if (found == in_b_.end()) {
        tensors_.add_only_in("first", name, ours.spec);
      } else if (ours.spec != found->second.spec) {
        tensors_.add_other_spec(name, ours.spec, found->second.spec);
      } else if (to_read(ours, found->second)) {
        const auto one = read_tensor(file_a, a_, options_.a, name);
        const auto other = read_tensor(file_b, b_, options_.b, name);
        tensors_.changed.push_back(
            {name, ours.spec, compare_tensors(ours.spec.dtype, *one->find(name), *other->find(name))});
      } else if (ours.digest != found->second.digest) {
        tensors_.add_unread(name, ours.spec);
      }
      // Otherwise equal digests mean equal bytes, so nothing of such a tensor is read.
    }
    for (const auto& [name, tensor] : in_b_) {
      if (!in_a_.contains(name)) tensors_.add_only_in("second", name, tensor.spec);
    }
  }

  std::vector<std::string> differing_attributes(Role role) const {
    std::vector<std::string> names;
    // Compared as tensors.
    std::set<std::string> digests;
    for (const auto* listed : {&in_a_, &in_b_}) {
      for (const auto& [name, tensor] : *listed) {
        if (!tensor.stored) digests.insert(digest_attribute(name));
      }
    }
    const auto consider = [&](const std::string& name) {
      if (digests.contains(name)) return;
      const Attribute* const x = a_.index.attributes.find(name);
      const Attribute* const y = b_.index.attributes.find(name);
      const bool same = x != nullptr && y != nullptr && x->role == y->role && same_bits(x->value, y->value);
      if (!same) names.push_back(name);
    };
    for (const auto& [name, attribute] : a_.index.attributes) {
      if (attribute.role == role) consider(name);
    }
    for (const auto& [name, attribute] : b_.index.attributes) {
      // What the first file has with this role was considered above.
      const Attribute* const ours = a_.index.attributes.find(name);
      if (attribute.role == role && (ours == nullptr || ours->role != role)) consider(name);
    }
    return names;
  }

  void print_attributes(Role role, const char* title) {
    using enum Table::Align;
    Table table({left, left, left});
    const auto text = [](const Attribute* attribute) {
      return attribute == nullptr ? std::string("-") : printable(to_text(attribute->value), 60);
    };
    for (const std::string& name : differing_attributes(role)) {
      table.add({name, text(a_.index.attributes.find(name)), text(b_.index.attributes.find(name))});
    }
    if (table.empty()) return;
    if (role == Role::decides) different_ = true;
    std::cout << title << '\n';
    table.print(std::cout, 2);
  }

  const DiffRequest& options_;
  Opened a_;
  Opened b_;
  std::map<std::string, Listed> in_a_, in_b_;
  std::vector<std::string> order_;  // of in_a_, as in the file
  DifferingTensors tensors_;
  ReadLimit limit_;
  bool different_ = false;
};

int run_diff(const DiffRequest& options) {
  // A foreign file has no digests and no attributes: only the weights can be compared.
  if (is_foreign_file(options.a) || is_foreign_file(options.b)) {
    return diff_weights({.a = options.a,
                         .b = options.b,
                         .all = options.all,
                         .json = options.json,
                         .read_limit = options.read_limit});
  }
  return Comparison(options, open_for_comparison(options.a), open_for_comparison(options.b)).run();
}

constexpr char kDiffFooter[] =
    R"(Reads only tensors whose digests differ. `ulp` is the largest difference, counted in representable numbers.
A or B may be a file of PyTorch or safetensors. Then only the weights are compared, by key, and all are read.

Exit code: 0 equal, 1 different, 2 unreadable.

Example:
  holdfast diff run1/step-000000001200-a0001.h5 run2/step-000000001200-a0001.h5)";

}  // namespace

void add_diff(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<DiffRequest>();
  CLI::App* const command = app.add_subcommand(
      "diff", "Compare the training states of two checkpoints, or weights with those of other programs");
  command->add_option("A", options->a, "a checkpoint, or a .pt or .safetensors file")->required();
  command->add_option("B", options->b, "another")->required();
  command->add_flag("--all", options->all,
                    "list every tensor that differs, and records such as host and time");
  add_read_limit(*command, options->read_limit);
  add_color(*command, options->color);
  add_json(*command, options->json);
  command->footer(kDiffFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_diff(*options); }; });
}

}}  // namespace holdfast::v0_2
