#include "holdfast/cli/weights_diff.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/examine.h"
#include "holdfast/cli/json_output.h"
#include "holdfast/cli/metered_file.h"
#include "holdfast/cli/table.h"
#include "holdfast/cli/tensor_difference.h"
#include "holdfast/format/foreign_weights.h"
#include "holdfast/format/state_dict.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// The weights of one file: a checkpoint's module "model", or all of a foreign file.
class Weights {
 public:
  Weights(const std::filesystem::path& path, ReadLimit& limit)
      : path_(path), opened_(open_checkpoint(path)), file_(std::make_unique<MeteredFile>(*opened_, limit)) {
    if (!looks_foreign(*file_)) {
      Opened opened = open(path);
      checkpoint_ = std::move(opened.index);
      for (const ExportedTensor& tensor : state_dict_of(checkpoint_)) {
        specs_[tensor.key] = checkpoint_.tensors[tensor.tensor].spec;
        sources_[tensor.key] = tensor.tensor;
      }
      forget_unshared();
      return;
    }
    auto index = read_foreign_index(*file_);
    if (const auto* const rejection = std::get_if<Rejection>(&index)) refuse(rejection->reason);
    foreign_ = std::move(std::get<ForeignIndex>(index));
    for (const TensorSpec& spec : specs_of(*foreign_)) specs_[spec.name] = spec;
    const auto* const torch = std::get_if<TorchIndex>(&*foreign_);
    // In safetensors no two tensors share bytes.
    if (torch == nullptr) return;
    for (const auto& tensor : torch->tensors) sources_[tensor.spec.name] = tensor.storage;
    forget_unshared();
  }

  // By key; the names in checkpoints have a group in front.
  const std::map<std::string, TensorSpec>& specs() const { return specs_; }

  // Where the bytes lie, if other keys share them: a storage of PyTorch, or one tensor of a checkpoint.
  std::optional<std::size_t> shared_source(const std::string& key) const {
    const auto found = sources_.find(key);
    return found != sources_.end() ? std::optional(found->second) : std::nullopt;
  }

  // Valid until the next call. Reads nothing if the last call was for the same source.
  std::span<const std::byte> read(const std::string& key) {
    const auto from = shared_source(key);
    if (!from || from != read_source_) {
      read_.reset();  // before the next one needs memory
      read_ = read_with(key, from);
      read_source_ = from;
    }
    const std::string& name = specs_.at(key).name;
    return read_->find(foreign_ ? std::string(kModelModule) + "/" + name : name).value();
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(shown(path_) + ": " + reason, ExitCode::unreadable);
  }
  static Opened open(const std::filesystem::path& path) {
    try {
      return open_index(path);
    } catch (const Error& error) {
      throw Error(error.what(), ExitCode::unreadable);  // 1 would mean that the files differ
    }
  }

  // A key without a partner gains nothing from the order by source, and keeps its place by name.
  void forget_unshared() {
    std::map<std::size_t, int> users;
    for (const auto& [key, source] : sources_) ++users[source];
    std::erase_if(sources_, [&](const auto& each) { return users[each.second] == 1; });
  }

  // With all tensors of its source.
  std::shared_ptr<Snapshot> read_with(const std::string& key, std::optional<std::size_t> source) const {
    const std::string& name = specs_.at(key).name;
    const auto wanted = [&](const TensorSpec& spec) {
      return spec.name == name || (foreign_ && source && shared_source(spec.name) == source);
    };
    auto read = foreign_ ? read_foreign(*file_, *foreign_, kModelModule, 1, wanted)
                         : read_tensors(*file_, checkpoint_, wanted, 1);
    if (const auto* const rejection = std::get_if<Rejection>(&read)) refuse(rejection->reason);
    return std::get<std::shared_ptr<Snapshot>>(read);
  }

  std::filesystem::path path_;
  std::unique_ptr<File> opened_;
  std::unique_ptr<MeteredFile> file_;
  CheckpointIndex checkpoint_;
  std::optional<ForeignIndex> foreign_;
  std::map<std::string, TensorSpec> specs_;
  std::map<std::string, std::size_t> sources_;  // by key, where several keys share one
  std::shared_ptr<Snapshot> read_;              // of the last read()
  std::optional<std::size_t> read_source_;
};

struct DifferingWeight {
  std::string key;
  TensorSpec spec;
  TensorDifference difference;
};

void print(const std::vector<DifferingWeight>& changed, bool all) {
  if (changed.empty()) return;
  using enum Table::Align;
  Table table({left, left, left, left, left, right});
  const auto add = [&](const char* label, const DifferingWeight& each) {
    const TensorDifference& d = each.difference;
    table.add({label, printable(each.key), spec_text(each.spec),
               format_count(static_cast<std::int64_t>(d.different)) + " of " +
                   format_count(static_cast<std::int64_t>(d.elements)) + ", from element " +
                   std::to_string(d.first),
               "max |a-b| " + format_number(d.largest),
               d.ulp ? std::to_string(*d.ulp) + " ulp" : std::string()});
  };
  add("first", changed.front());
  add("worst", *std::max_element(changed.begin(), changed.end(),
                                 [](const DifferingWeight& a, const DifferingWeight& b) {
                                   return a.difference.largest < b.difference.largest;
                                 }));
  if (all) {
    for (const DifferingWeight& each : changed) add("", each);
  }
  table.print(std::cout, 2);
}

void print_as_json(const std::vector<DifferingWeight>& changed, const std::vector<std::string>& others,
                   std::size_t tensors) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const DifferingWeight& each : changed) {
    const TensorDifference& d = each.difference;
    list.push_back({{"name", each.key},
                    {"elements", d.elements},
                    {"different", d.different},
                    {"first", d.first},
                    {"largest", json_number(d.largest)},
                    {"ulp", d.ulp ? Json(*d.ulp) : Json(nullptr)}});
  }
  print_json({{"schema", kJsonSchema},
              {"equal", changed.empty() && others.empty()},
              {"tensors", tensors},
              {"changed", list},
              {"other", others},
              {"attributes", Json::array()}});
}

}  // namespace

bool is_foreign_file(const std::filesystem::path& path) { return looks_foreign(*open_checkpoint(path)); }

int diff_weights(const WeightsDiffRequest& request) {
  ReadLimit limit(request.read_limit);
  Weights ours(request.a, limit);
  Weights theirs(request.b, limit);
  std::vector<std::string> common;
  std::vector<DifferingWeight> changed;
  std::vector<std::string> others;
  for (const auto& [key, spec] : ours.specs()) {
    const auto found = theirs.specs().find(key);
    if (found == theirs.specs().end()) {
      others.push_back("only in the first: " + printable(key) + "  " + spec_text(spec));
    } else if (found->second.dtype != spec.dtype || found->second.shape != spec.shape) {
      others.push_back(printable(key) + ": " + spec_text(spec) + " in the first, " +
                       spec_text(found->second) + " in the second");
    } else if (spec.bytes() != 0) {
      common.push_back(key);
    }
  }
  // By source, so that a storage of many tensors is read once. One at a time: two files may not fit into memory.
  const auto place = [&](const std::string& key) {
    return std::tuple(ours.shared_source(key), theirs.shared_source(key), key);
  };
  std::sort(common.begin(), common.end(),
            [&](const std::string& a, const std::string& b) { return place(a) < place(b); });
  for (const std::string& key : common) {
    const TensorSpec& spec = ours.specs().at(key);
    const TensorDifference difference = compare_tensors(spec.dtype, ours.read(key), theirs.read(key));
    if (difference.different != 0) changed.push_back({key, spec, difference});
  }
  // Back into the order of the keys: "first" is meant by key, not by place in the file.
  std::sort(changed.begin(), changed.end(),
            [](const DifferingWeight& a, const DifferingWeight& b) { return a.key < b.key; });
  for (const auto& [key, spec] : theirs.specs()) {
    if (!ours.specs().contains(key)) {
      others.push_back("only in the second: " + printable(key) + "  " + spec_text(spec));
    }
  }
  const bool different = !changed.empty() || !others.empty();
  if (request.json) {
    print_as_json(changed, others, ours.specs().size());
  } else {
    for (const std::string& line : others) std::cout << "  " << line << '\n';
    std::cout << "weights: " << changed.size() << " of " << ours.specs().size() << " differ in value";
    if (!others.empty()) std::cout << ", " << others.size() << " in name, type or shape";
    std::cout << '\n';
    print(changed, request.all);
    std::cout << (different ? "different" : "equal") << '\n';
  }
  return static_cast<int>(different ? ExitCode::difference : ExitCode::complete);
}

}}  // namespace holdfast::v0_2
