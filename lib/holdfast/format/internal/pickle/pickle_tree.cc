#include "holdfast/format/internal/pickle/pickle_tree.h"

#include <array>
#include <unordered_set>

#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/pickle/pickle_tensor.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

using Kind = PickleValue::Kind;

// Where trainers keep the weights, the best first.
constexpr std::array<std::string_view, 8> kUsualKeys = {"model_state_dict", "state_dict", "model",  "net",
                                                        "module",           "weights",    "params", "ema"};

bool has_tensors(const PickleValue& value) {
  const auto* const items = items_of(value);
  for (std::size_t i = 1; items != nullptr && i < items->size(); i += 2) {
    const Kind kind = (*items)[i]->kind;
    if (kind == Kind::tensor || kind == Kind::unstorable || kind == Kind::object) return true;
  }
  return false;
}

using Visited = std::unordered_set<const PickleValue*>;

// A dict with tensors, in itself or in its dicts and lists. `without`: values that are known to have none;
// many dicts may share them, and each is looked at once.
bool is_dict_over_tensors(const PickleValue& value, Visited& without) {
  if (items_of(value) == nullptr) return false;
  std::vector<const PickleValue*> waiting{&value};
  Visited seen{&value};
  while (!waiting.empty()) {
    const PickleValue& next = *waiting.back();
    waiting.pop_back();
    if (next.kind == Kind::tensor || next.kind == Kind::unstorable || has_tensors(next)) return true;
    const auto* const dict = items_of(next);
    if (dict == nullptr && !is_sequence(next)) continue;
    for (const PickleValue* const item : dict != nullptr ? *dict : next.items) {
      if (!without.contains(item) && seen.insert(item).second) waiting.push_back(item);
    }
  }
  without.merge(seen);
  return false;
}

bool is_optimizer(const PickleValue& value) {
  return find(value, "state") != nullptr && find(value, "param_groups") != nullptr;
}

}  // namespace

const std::vector<const PickleValue*>* items_of(const PickleValue& value) {
  if (value.kind == Kind::dict) return &value.items;
  if (value.kind != Kind::object) return nullptr;
  static const std::vector<const PickleValue*> nothing;
  return value.items.empty() ? &nothing : &value.items[0]->items;
}

std::optional<std::string> key_text(const PickleValue& key) {
  if (key.kind == Kind::text) return std::string(key.text());
  if (key.kind == Kind::integer) return std::to_string(key.integer);
  return std::nullopt;
}

bool is_sequence(const PickleValue& value) { return value.kind == Kind::list || value.kind == Kind::tuple; }

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
    const auto key = key_text(*(*items)[i]);
    if (key) text += (text.empty() ? "'" : ", '") + printable(*key, 64) + "'";
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
  refuse("there is no '" + printable(path) + "' in it, but " + keys_in(root));
}

const PickleValue& the_weights(const PickleValue& root) {
  if (root.kind == Kind::tensor || is_sequence(root)) return root;
  if (items_of(root) == nullptr) refuse("it has no tensors");
  if (root.kind == Kind::object) return root;
  Visited without;
  for (const std::string_view key : kUsualKeys) {
    const PickleValue* const found = find(root, key);
    if (found != nullptr && is_dict_over_tensors(*found, without)) return *found;
  }
  if (has_tensors(root)) return root;
  if (is_optimizer(root)) refuse("no dict of tensors in it, but " + keys_in(root));
  const PickleValue* only = nullptr;
  const auto& items = *items_of(root);
  Visited judged;
  for (std::size_t i = 1; i < items.size(); i += 2) {
    if (!judged.insert(items[i]).second) continue;
    if (is_optimizer(*items[i]) || !is_dict_over_tensors(*items[i], without)) continue;
    if (only != nullptr) {
      refuse("several of its dicts have tensors: give the key of the weights, one of " + keys_in(root));
    }
    only = items[i];
  }
  if (only == nullptr) refuse("no dict of tensors in it, but " + keys_in(root));
  return *only;
}

}}}  // namespace holdfast::v0_2::internal
