#include "holdfast/data/dataset.h"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <c10/core/ScalarType.h>

#include <cstring>
#include <sstream>

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << tensor.sizes();
  return text.str();
}

at::Tensor stack_field(std::span<const std::int64_t> samples,
                       const std::vector<std::vector<at::Tensor>>& rows, std::size_t field,
                       TensorPool& pool) {
  const at::Tensor& first = rows.front()[field];
  bool plain = true;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const at::Tensor& one = rows[i][field];
    if (one.scalar_type() != first.scalar_type() || one.sizes() != first.sizes()) {
      throw Error("the data set's samples cannot be stacked: field " + std::to_string(field) + " of sample " +
                  std::to_string(samples[i]) + " is " + describe(one) + ", that of sample " +
                  std::to_string(samples[0]) + " is " + describe(first));
    }
    // Other tensors are stacked by LibTorch, which knows strides, devices and lazy conjugates.
    plain = plain && one.device().is_cpu() && one.layout() == at::kStrided && one.is_contiguous() &&
            !one.is_conj() && !one.is_neg();
  }
  if (!plain) {
    std::vector<at::Tensor> column;
    column.reserve(rows.size());
    for (const auto& row : rows) column.push_back(row[field]);
    return at::stack(column);
  }
  std::vector<std::int64_t> sizes{static_cast<std::int64_t>(rows.size())};
  sizes.insert(sizes.end(), first.sizes().begin(), first.sizes().end());
  at::Tensor out = pool.take(sizes, first.scalar_type());
  const std::size_t bytes = first.nbytes();
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  for (const auto& row : rows) {
    // memcpy() with a null pointer is undefined, even for no bytes.
    if (bytes > 0) std::memcpy(to, row[field].const_data_ptr(), bytes);
    to += bytes;
  }
  return out;
}

}  // namespace

at::Tensor number_field(std::int64_t value) { return at::scalar_tensor(value, at::kLong); }
at::Tensor number_field(bool value) { return at::scalar_tensor(value, at::kBool); }
at::Tensor number_field(float value) { return at::scalar_tensor(value, at::kFloat); }
at::Tensor number_field(double value) { return at::scalar_tensor(value, at::kDouble); }

std::vector<at::Tensor> stack(std::span<const std::int64_t> samples,
                              const std::vector<std::vector<at::Tensor>>& rows, TensorPool& pool) {
  std::vector<at::Tensor> fields;
  for (std::size_t field = 0; field < rows.front().size(); ++field) {
    fields.push_back(stack_field(samples, rows, field, pool));
  }
  return fields;
}

std::string shape_fingerprint(std::int64_t size, const std::vector<at::Tensor>& fields) {
  // Shapes and not content: reading all samples of a large set would take hours.
  std::string text = "size " + std::to_string(size);
  for (const at::Tensor& field : fields) text += " " + describe(field);
  return text;
}

void throw_sample_failed(std::int64_t sample, const char* what) {
  const std::string_view text(what);  // torch appends a stack trace after the first line
  throw Error("the data set's get(" + std::to_string(sample) +
              ") failed: " + std::string(text.substr(0, text.find('\n'))));
}

}}}  // namespace holdfast::v0_2::internal
