#include "dist/shard_program/digests.h"

#include <ATen/ops/cat.h>

#include <span>

#include "holdfast/snapshot/digest.h"

namespace holdfast::test {

at::Tensor flat_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& tensor : tensors) rows.push_back(tensor.detach().reshape({-1}));
  return at::cat(rows);
}

std::string digest_of_tensors(const std::vector<at::Tensor>& tensors) {
  const at::Tensor all = flat_of(tensors).contiguous();
  return to_hex(digest_of(std::span(static_cast<const std::byte*>(all.const_data_ptr()), all.nbytes())));
}

}  // namespace holdfast::test
