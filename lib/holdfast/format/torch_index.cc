// The index of a PyTorch archive: which tensors there are, and where their bytes lie.
#include <map>
#include <unordered_set>

#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/pickle/pickle_archive.h"
#include "holdfast/format/internal/pickle/pickle_tensor.h"
#include "holdfast/format/internal/pickle/pickle_tree.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/internal/zip/zip_reader.h"
#include "holdfast/format/torch_archive.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::damaged;
using internal::find;
using internal::is_sequence;
using internal::items_of;
using internal::key_text;
using internal::keys_in;
using internal::PickleTensor;
using internal::PickleValue;
using Refusal = internal::PickleRefusal;
using Kind = PickleValue::Kind;

constexpr int kMaxDepth = 64;           // bounds the recursion; state dicts have three or four levels
constexpr std::size_t kMaxName = 1024;  // as in tensor_spec.h
// An optimizer that C++ saved names parameters by their addresses, and lists these in its groups. Here they
// get numbers, as in Python.
using Numbers = std::map<std::string_view, std::string>;
using Members = std::map<std::string_view, const PickleValue*, std::less<>>;
Members members_of(const PickleValue& dict) {
  Members members;
  const auto* const items = items_of(dict);
  for (std::size_t i = 0; items != nullptr && i < items->size(); i += 2) {
    if ((*items)[i]->kind == Kind::text) members[(*items)[i]->text()] = (*items)[i + 1];
  }
  return members;
}

Numbers parameter_numbers(const PickleValue& root) {
  Numbers numbers;
  if (root.kind != Kind::object || find(root, "state") == nullptr) return numbers;
  const PickleValue* const listed = find(root, "param_groups");
  const Members groups = listed != nullptr ? members_of(*listed) : Members();
  std::unordered_set<const PickleValue*> seen;
  for (std::size_t g = 0;; ++g) {
    const auto group = groups.find("param_groups/" + std::to_string(g));
    if (group == groups.end()) break;
    if (!seen.insert(group->second).second) continue;
    const Members members = members_of(*group->second);
    for (std::size_t i = 0;; ++i) {
      const auto address = members.find("params/" + std::to_string(i));
      if (address == members.end() || address->second->kind != Kind::text) break;
      numbers.emplace(address->second->text(), std::to_string(numbers.size()));
    }
  }
  return numbers;
}

// Follows dicts, lists and objects down to the tensors. Values may refer to each other again and again, so
// the results are compared with the size of the pickle: a value takes a byte wherever it is named.
class Collector {
 public:
  struct Found {
    std::string name;
    const PickleTensor* tensor;
  };

  Collector(const internal::Unpickled& all, std::size_t pickle_size, Numbers numbers)
      : values_left_(2 * pickle_size + 16),
        tensors_left_(4 * all.tensors.size() + 16),
        names_left_(8 * pickle_size + (64U << 10U)),
        numbers_(std::move(numbers)) {}

  void collect(const PickleValue& value, const std::string& name, int depth = 0) {
    spend(values_left_, 1);
    if (depth > kMaxDepth) throw Refusal{"its values are nested too deeply"};
    if (value.kind == Kind::tensor) {
      spend(tensors_left_, 1);
      spend(names_left_, name.size());
      found.push_back({name.empty() ? "tensor" : name, value.tensor});
      return;
    }
    if (value.kind == Kind::unstorable) {
      throw Refusal{(name.empty() ? "" : "'" + printable(name) + "': ") + std::string(value.text())};
    }
    const std::string prefix = name.empty() ? "" : name + ".";
    if (const auto* const items = items_of(value)) {
      const bool is_dict = value.kind == Kind::dict;  // flags of scripts are not named
      for (std::size_t i = 0; i < items->size(); i += 2) {
        const auto known = key_text(*(*items)[i]);
        if (!known) {
          leave_out(*(*items)[i + 1], name, depth);
          continue;
        }
        const std::string& key = *known;
        if (key.size() + prefix.size() > kMaxName) throw Refusal{"a key has more than 1,024 bytes"};
        const auto number = numbers_.find(key);
        if (is_dict && is_plain(*(*items)[i + 1])) note(prefix + key);
        collect(*(*items)[i + 1], prefix + (number == numbers_.end() ? key : number->second), depth + 1);
      }
    } else if (is_sequence(value)) {
      bool plain = false;
      for (std::size_t i = 0; i < value.items.size(); ++i) {
        plain = plain || is_plain(*value.items[i]);
        collect(*value.items[i], prefix + std::to_string(i), depth + 1);
      }
      if (plain && !name.empty()) note(name);
    }
  }

  // The keys beside a dict that was chosen.
  void note_beside(const PickleValue& root, const PickleValue& chosen) {
    const auto* const items = &root != &chosen ? items_of(root) : nullptr;
    for (std::size_t i = 0; items != nullptr && i < items->size(); i += 2) {
      if ((*items)[i]->kind == Kind::text && (*items)[i + 1] != &chosen)
        note(std::string((*items)[i]->text()));
    }
  }

  std::vector<Found> found;
  std::vector<std::string> others;

 private:
  // What lies under a key that can name no weight: None, 1.5, a tuple.
  void leave_out(const PickleValue& value, const std::string& name, int depth) {
    const std::size_t tensors = found.size();
    const std::size_t noted = others.size();
    collect(value, name, depth + 1);
    if (found.size() != tensors) {
      throw Refusal{"a tensor in '" + printable(name) + "' has a key that is neither a text nor a number"};
    }
    others.resize(noted);
    // Once for all such keys of a dict.
    if (!name.empty() && (others.empty() || others.back() != name)) note(name);
  }
  static bool is_plain(const PickleValue& value) {
    return value.kind != Kind::tensor && items_of(value) == nullptr && !is_sequence(value);
  }
  void note(std::string name) {
    constexpr std::size_t kMost = 1000;
    if (others.size() < kMost) others.push_back(std::move(name));
  }

  static void spend(std::size_t& left, std::size_t amount) {
    if (left < amount) throw Refusal{"its values repeat each other without end"};
    left -= amount;
  }

  std::size_t values_left_;
  std::size_t tensors_left_;
  std::size_t names_left_;
  Numbers numbers_;
};

void check_names(const TorchIndex& index) {
  std::unordered_set<std::string_view> names;
  for (const TorchIndex::Tensor& tensor : index.tensors) {
    if (!names.insert(tensor.spec.name).second) {
      throw Refusal{"two tensors are named '" + printable(tensor.spec.name) + "'"};
    }
  }
}

TorchIndex index_at(const File& file, std::string_view key) {
  internal::PickleArchive archive(file);
  const internal::Unpickled& values = archive.values();
  const PickleValue& weights =
      key.empty() ? internal::the_weights(*values.root) : internal::at_path(*values.root, key);
  Collector collector(values, archive.pickle_size(), parameter_numbers(weights));
  collector.collect(weights, {});
  if (key.empty()) collector.note_beside(*values.root, weights);
  if (collector.found.empty()) throw Refusal{"there are no tensors in it, but " + keys_in(weights)};
  TorchIndex index;
  index.others = std::move(collector.others);
  for (const auto& [name, tensor] : collector.found) archive.add(index, name, *tensor);
  check_names(index);
  archive.check_size(index);
  return index;
}

}  // namespace

bool looks_like_torch(const File& file) {
  return internal::looks_like_zip(file) || internal::refuse_legacy(file);
}

std::variant<TorchIndex, Rejection> read_torch_index(const File& file, std::string_view key) {
  if (auto rejection = internal::refuse_legacy(file)) return std::move(*rejection);
  try {
    return index_at(file, key);
  } catch (const Refusal& refusal) {
    return damaged("PyTorch archive: " + refusal.reason);
  }
}

}}  // namespace holdfast::v0_2
