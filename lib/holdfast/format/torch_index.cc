// The index of a PyTorch archive: which tensors there are, and where their bytes lie.
#include <array>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/crc32.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/internal/unpickler.h"
#include "holdfast/format/internal/zip_reader.h"
#include "holdfast/format/torch_archive.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::damaged;
using internal::PickleTensor;
using internal::PickleValue;
using internal::ZipEntry;
using Kind = PickleValue::Kind;

constexpr int kMaxDepth = 64;           // bounds the recursion; state dicts have three or four levels
constexpr std::size_t kMaxName = 1024;  // as in tensor_spec.h
constexpr std::string_view kPickleName = "/data.pkl";
// How a file of PyTorch before 1.6 begins: a pickle of the number 0x1950a86a20f9469cfc6c.
constexpr std::string_view kLegacyStart = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.";
// Where trainers keep the weights, the best first.
constexpr std::array<std::string_view, 8> kUsualKeys = {"model_state_dict", "state_dict", "model",  "net",
                                                        "module",           "weights",    "params", "ema"};

struct Refusal {
  std::string reason;
};

// The items of a dict, or of an object of a C++ archive.
const std::vector<const PickleValue*>* items_of(const PickleValue& value) {
  if (value.kind == Kind::dict) return &value.items;
  if (value.kind != Kind::object) return nullptr;
  static const std::vector<const PickleValue*> nothing;
  return value.items.empty() ? &nothing : &value.items[0]->items;
}

std::string key_text(const PickleValue& key) {
  if (key.kind == Kind::text) return std::string(key.text());
  if (key.kind == Kind::integer) return std::to_string(key.integer);
  throw Refusal{"a key is neither a text nor a number"};
}

bool is_sequence(const PickleValue& value) { return value.kind == Kind::list || value.kind == Kind::tuple; }

bool has_tensors(const PickleValue& value) {
  const auto* const items = items_of(value);
  for (std::size_t i = 1; items != nullptr && i < items->size(); i += 2) {
    if ((*items)[i]->kind == Kind::tensor || (*items)[i]->kind == Kind::object) return true;
  }
  return false;
}

using Values = std::unordered_set<const PickleValue*>;

// A dict with tensors, in itself or in its dicts and lists. `without`: values that are known to have none;
// many dicts may share them, and each is looked at once.
bool is_dict_over_tensors(const PickleValue& value, Values& without) {
  if (items_of(value) == nullptr) return false;
  std::vector<const PickleValue*> waiting{&value};
  Values seen{&value};
  while (!waiting.empty()) {
    const PickleValue& next = *waiting.back();
    waiting.pop_back();
    if (next.kind == Kind::tensor || has_tensors(next)) return true;
    const auto* const dict = items_of(next);
    if (dict == nullptr && !is_sequence(next)) continue;
    for (const PickleValue* const item : dict != nullptr ? *dict : next.items) {
      if (!without.contains(item) && seen.insert(item).second) waiting.push_back(item);
    }
  }
  without.merge(seen);
  return false;
}

const PickleValue* find(const PickleValue& dict, std::string_view key) {
  const auto* const items = items_of(dict);
  const PickleValue* found = nullptr;
  for (std::size_t i = 0; items != nullptr && i < items->size(); i += 2) {
    const PickleValue& name = *(*items)[i];
    const bool same = name.kind == Kind::text
                          ? name.text() == key
                          : name.kind == Kind::integer && std::to_string(name.integer) == key;
    if (same) found = (*items)[i + 1];
  }
  return found;
}

std::string keys_in(const PickleValue& value) {
  constexpr std::size_t kMost = 12;
  std::string text;
  const auto* const items = items_of(value);
  if (items == nullptr) return "no keys";
  for (std::size_t i = 0; i < items->size(); i += 2) {
    if (i == 2 * kMost) return text + ", …";
    text += (text.empty() ? "'" : ", '") + printable(key_text(*(*items)[i]), 64) + "'";
  }
  return text.empty() ? "no keys" : text;
}

const PickleValue& at_path(const PickleValue& root, std::string_view path) {
  // The whole path first, because the keys of a state dict have dots themselves ("layer1.0.weight").
  if (const PickleValue* const whole = find(root, path)) return *whole;
  const std::size_t dot = path.find('.');
  if (dot != std::string_view::npos) {
    if (const PickleValue* const first = find(root, path.substr(0, dot))) {
      return at_path(*first, path.substr(dot + 1));
    }
  }
  throw Refusal{"there is no '" + printable(path) + "' in it, but " + keys_in(root)};
}

bool is_optimizer(const PickleValue& value) {
  return find(value, "state") != nullptr && find(value, "param_groups") != nullptr;
}

const PickleValue& the_weights(const PickleValue& root) {
  if (root.kind == Kind::tensor || is_sequence(root)) return root;
  if (items_of(root) == nullptr) throw Refusal{"it has no tensors"};
  if (root.kind == Kind::object) return root;
  Values without;
  for (const std::string_view key : kUsualKeys) {
    const PickleValue* const found = find(root, key);
    if (found != nullptr && is_dict_over_tensors(*found, without)) return *found;
  }
  if (has_tensors(root)) return root;
  if (is_optimizer(root)) throw Refusal{"no dict of tensors in it, but " + keys_in(root)};
  const PickleValue* only = nullptr;
  const auto& items = *items_of(root);
  Values judged;
  for (std::size_t i = 1; i < items.size(); i += 2) {
    if (!judged.insert(items[i]).second) continue;
    if (is_optimizer(*items[i]) || !is_dict_over_tensors(*items[i], without)) continue;
    if (only != nullptr) {
      throw Refusal{"several of its dicts have tensors: give the key of the weights, one of " +
                    keys_in(root)};
    }
    only = items[i];
  }
  if (only == nullptr) throw Refusal{"no dict of tensors in it, but " + keys_in(root)};
  return *only;
}

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
  Values seen;
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
// the results are compared with the size of the pickle.
class Collector {
 public:
  struct Found {
    std::string name;
    const PickleTensor* tensor;
  };

  Collector(const internal::Unpickled& all, std::size_t pickle_size, Numbers numbers)
      : values_left_(2 * all.values.size() + 16),
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
    const std::string prefix = name.empty() ? "" : name + ".";
    if (const auto* const items = items_of(value)) {
      const bool is_dict = value.kind == Kind::dict;  // flags of scripts are not named
      for (std::size_t i = 0; i < items->size(); i += 2) {
        const std::string key = key_text(*(*items)[i]);
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
      if ((*items)[i]->kind == Kind::text && (*items)[i + 1] != &chosen) note(key_text(*(*items)[i]));
    }
  }

  std::vector<Found> found;
  std::vector<std::string> others;

 private:
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

class ArchiveIndex {
 public:
  explicit ArchiveIndex(const File& file) : file_(file) {}

  TorchIndex read(std::string_view key) {
    auto zip = internal::read_zip(file_);
    if (const auto* const rejection = std::get_if<Rejection>(&zip)) throw Refusal{rejection->reason};
    for (ZipEntry& entry : std::get<std::vector<ZipEntry>>(zip)) entries_.emplace(entry.name, entry);
    const std::string archive = archive_name();
    const std::string order = archive + "/byteorder";
    if (entries_.contains(order) && text_of(entry_of(order), 64) != "little") {
      throw Refusal{"its numbers are big-endian"};
    }
    const std::string pickle = text_of(entry_of(archive + std::string(kPickleName)), internal::kMaxPickle);
    auto unpickled = internal::unpickle(pickle);
    if (const auto* const rejection = std::get_if<Rejection>(&unpickled)) throw Refusal{rejection->reason};
    const auto& values = std::get<internal::Unpickled>(unpickled);
    const PickleValue& weights = key.empty() ? the_weights(*values.root) : at_path(*values.root, key);
    Collector collector(values, pickle.size(), parameter_numbers(weights));
    collector.collect(weights, {});
    if (key.empty()) collector.note_beside(*values.root, weights);
    if (collector.found.empty()) throw Refusal{"there are no tensors in it, but " + keys_in(weights)};
    TorchIndex index;
    index.others = std::move(collector.others);
    for (const auto& [name, tensor] : collector.found) add(index, archive, name, *tensor);
    check_names(index);
    check_size(index);
    return index;
  }

 private:
  // PyTorch names the folder in the archive after the file.
  std::string archive_name() const {
    std::string found;
    for (const auto& [name, entry] : entries_) {
      if (!name.ends_with(kPickleName)) continue;
      std::string folder = name.substr(0, name.size() - kPickleName.size());
      if (folder.find('/') != std::string::npos) continue;
      if (!found.empty()) throw Refusal{"it has more than one data.pkl"};
      found = std::move(folder);
    }
    if (found.empty()) throw Refusal{"it is a zip archive without data.pkl, so PyTorch did not write it"};
    return found;
  }

  const ZipEntry& entry_of(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found == entries_.end()) throw Refusal{"'" + printable(name) + "' is missing in it"};
    if (!found->second.stored)
      throw Refusal{"'" + printable(name) + "' is compressed, which PyTorch never does"};
    return found->second;
  }

  std::string text_of(const ZipEntry& entry, std::uint64_t most) const {
    if (entry.size > most) {
      throw Refusal{"'" + printable(entry.name) + "' has " + std::to_string(entry.size) +
                    " bytes, more than it needs"};
    }
    std::string text(entry.size, '\0');
    const auto bytes = std::as_writable_bytes(std::span(text));
    if (file_.read_at(bytes, entry.offset) < bytes.size())
      throw Refusal{"the file became shorter while it was read"};
    if (internal::crc32(bytes) != entry.crc) {
      throw Refusal{"the checksum of '" + printable(entry.name) +
                    "' differs: " + std::string(internal::kBadCrc)};
    }
    return text;
  }

  void add(TorchIndex& index, const std::string& archive, const std::string& name,
           const PickleTensor& tensor) {
    const std::string key(tensor.storage->key);
    auto found = storages_.find(key);
    if (found == storages_.end()) {
      const ZipEntry& entry = entry_of(archive + "/data/" + key);
      found = storages_.emplace(key, index.storages.size()).first;
      index.storages.push_back({entry.offset, entry.size, entry.crc});
    }
    const std::uint64_t unit = tensor.storage->dtype ? size_of(*tensor.storage->dtype) : 1;
    if (index.storages[found->second].size != tensor.storage->elements * unit) {
      throw Refusal{"tensor '" + printable(name) + "': its storage has another size than its description"};
    }
    index.tensors.push_back({{name, tensor.dtype, tensor.shape},
                             found->second,
                             tensor.offset * size_of(tensor.dtype),
                             tensor.strides});
  }

  static void check_names(const TorchIndex& index) {
    std::unordered_set<std::string_view> names;
    for (const TorchIndex::Tensor& tensor : index.tensors) {
      if (!names.insert(tensor.spec.name).second) {
        throw Refusal{"two tensors are named '" + printable(tensor.spec.name) + "'"};
      }
    }
  }

  // Repeated views could make a large state of a small file.
  void check_size(const TorchIndex& index) const {
    constexpr std::uint64_t kFactor = 4;
    const std::uint64_t most = kFactor * file_.size();
    std::uint64_t total = 0;
    for (const TorchIndex::Tensor& tensor : index.tensors) {
      std::uint64_t bytes = size_of(tensor.spec.dtype);
      for (const std::int64_t size : tensor.spec.shape) {
        const auto count = static_cast<std::uint64_t>(size);
        bytes = count != 0 && bytes > (most + 1) / count ? most + 1 : bytes * count;
      }
      total += bytes;
      if (total > most) {
        throw Refusal{"its tensors are more than " + std::to_string(kFactor) +
                      " times larger than the file, because they repeat elements; save clones of them"};
      }
    }
  }

  const File& file_;
  std::unordered_map<std::string, ZipEntry> entries_;
  std::unordered_map<std::string, std::size_t> storages_;
};

bool is_legacy(const File& file) {
  std::string start(kLegacyStart.size(), '\0');
  return file.read_at(std::as_writable_bytes(std::span(start)), 0) == start.size() && start == kLegacyStart;
}

}  // namespace

bool looks_like_torch(const File& file) { return internal::looks_like_zip(file) || is_legacy(file); }

std::variant<TorchIndex, Rejection> read_torch_index(const File& file, std::string_view key) {
  if (is_legacy(file)) {
    return damaged(
        "the format of PyTorch before 1.6; in Python, torch.save(torch.load(FILE), NEW_FILE) writes today's");
  }
  try {
    return ArchiveIndex(file).read(key);
  } catch (const Refusal& refusal) {
    return damaged("PyTorch archive: " + refusal.reason);
  }
}

}}  // namespace holdfast::v0_2
