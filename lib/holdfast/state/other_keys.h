// A module whose tensors have further names in other programs' state dicts: a mixin for classes derived from
// torch::nn::Module. TrainState asks the modules that are added to it, not their parts.
//
// Tied keys are written by `holdfast export` and accepted by --init-from, together with the stored key or in
// its place (checkpoint/state_dict.h). Each is recorded in checkpoints as an alias (module_state.h), as a
// tensor that is registered twice would be; but an optimizer sees it once. Spellings are accepted only.
//
// Threads: const methods may be called from any thread.
#pragma once

#include <string>
#include <vector>

namespace holdfast::inline v1 {

struct TiedKey {
  std::string key;     // "cls.predictions.decoder.weight"
  std::string stored;  // the parameter or buffer that it is: "bert.embeddings.word_embeddings.weight"
};

// A key that holds `there` means the one with `here` in the place of its first occurrence. A key that becomes
// empty is none of this module's, and not looked at.
struct Spelling {
  std::string there, here;
};
// The first that applies.
inline std::string respelt(std::string key, const std::vector<Spelling>& spellings) {
  for (const auto& [there, here] : spellings) {
    const std::size_t at = key.find(there);
    if (at != std::string::npos) return key.replace(at, there.size(), here);
  }
  return key;
}

class OtherKeys {
 public:
  // Ensures: every `stored` is registered and no `key` is.
  virtual std::vector<TiedKey> tied_keys() const { return {}; }
  // Ensures: no key of this module holds a `there`; each is not empty.
  virtual std::vector<Spelling> spellings() const { return {}; }

 protected:
  OtherKeys() = default;
  OtherKeys(const OtherKeys&) = default;
  OtherKeys& operator=(const OtherKeys&) = default;
  ~OtherKeys() = default;
};

}  // namespace holdfast::inline v1
