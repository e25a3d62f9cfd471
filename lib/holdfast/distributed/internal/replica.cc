#include "holdfast/distributed/internal/replica.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <locale>
#include <sstream>

#include "holdfast/snapshot/dtype.h"
#include "holdfast/state/tensor_bytes.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr const char* kRoot = "model";

std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

std::vector<ModuleTensor> replica_of(torch::nn::Module& module) {
  const std::array modules{NamedModule{kRoot, &module}};
  std::vector<ModuleTensor> tensors = take_inventory(modules).tensors;
  // Names without the invented root, as the user knows them.
  for (ModuleTensor& entry : tensors) entry.name.erase(0, std::string(kRoot).size() + 1);
  return tensors;
}

std::string layout_text(const std::vector<ModuleTensor>& tensors) {
  std::ostringstream text;
  // The ranks' hosts may have other locales, which would group the digits of sizes.
  text.imbue(std::locale::classic());
  for (const ModuleTensor& entry : tensors) {
    // "frozen" counts as a difference: ranks that disagree about it would have other buckets of gradients.
    const char* const kind = entry.buffer ? "buffer" : entry.tensor.requires_grad() ? "parameter" : "frozen";
    // Shapes and types alone: values are compared later, after rank 0's have been sent.
    text << kind << ' ' << entry.name << ' ' << c10::toString(entry.tensor.scalar_type()) << ' '
         << entry.tensor.sizes() << '\n';
  }
  return text.str();
}

std::string layout_difference(const std::string& own, const std::string& first) {
  const auto mine = lines_in(own);
  const auto theirs = lines_in(first);
  for (std::size_t i = 0;; ++i) {
    if (i >= mine.size()) return "lacks '" + theirs.at(i) + "', which rank 0 has";
    if (i >= theirs.size()) return "has '" + mine[i] + "', which rank 0 lacks";
    if (mine[i] != theirs[i]) return "has '" + mine[i] + "' where rank 0 has '" + theirs[i] + "'";
  }
}

std::vector<Digest> digests_of(const std::vector<ModuleTensor>& tensors) {
  std::vector<Digest> digests;
  digests.reserve(tensors.size());
  for (const ModuleTensor& entry : tensors) {
    // In host memory, because the digest is computed there.
    const at::Tensor bytes = entry.tensor.detach().cpu().contiguous();
    digests.push_back(tensor_digest({static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()}));
  }
  return digests;
}

}}  // namespace holdfast::v0_2
