// A mixin for classes derived from torch::nn::Module whose tensors have other names in the state dicts of
// other programs. TrainState asks only the modules that are added to it, not their submodules.
//
// `holdfast export` writes tied keys. --init-from accepts them beside or instead of the stored key
// (format/state_dict.h). Checkpoints record each as an alias (module_state.h), like a tensor that is
// registered twice, but an optimizer sees it once. Spellings are only accepted, never written.
//
// Threads: const methods may be called from any thread.
#pragma once

#include <string>
#include <vector>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

struct TiedKey {
  std::string key;     // "cls.predictions.decoder.weight"
  std::string stored;  // the registered parameter or buffer: "bert.embeddings.word_embeddings.weight"
};

// In a foreign key, the first occurrence of `there` is replaced by `here`. A key that becomes empty belongs
// to no tensor of this module and is ignored.
struct Spelling {
  std::string there, here;
};
// Applies the first spelling that matches.
inline std::string respelt(std::string key, const std::vector<Spelling>& spellings) {
  for (const auto& [there, here] : spellings) {
    const std::size_t at = key.find(there);
    if (at != std::string::npos) return key.replace(at, there.size(), here);
  }
  return key;
}

class HOLDFAST_EXPORT OtherKeys {
 public:
  // Ensures: every `stored` is registered and no `key` is.
  virtual std::vector<TiedKey> tied_keys() const { return {}; }
  // Ensures: no `there` is empty, and no key of this module contains one.
  virtual std::vector<Spelling> spellings() const { return {}; }

 protected:
  OtherKeys() = default;
  OtherKeys(const OtherKeys&) = default;
  OtherKeys& operator=(const OtherKeys&) = default;
  ~OtherKeys() = default;
};

}}  // namespace holdfast::v0_2
