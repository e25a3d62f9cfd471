#include "holdfast/state/value.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"
#include "holdfast/state/tensor_bytes.h"

namespace holdfast { inline namespace v0_2 { namespace value_io {
namespace {

// Unsigned numbers lie in signed tensors of the same width: the recorded type of the variable tells them
// apart.
c10::ScalarType scalar_type(std::size_t size, bool floating) {
  if (floating) return size == 4 ? at::kFloat : at::kDouble;
  return size == 1 ? at::kByte : size == 2 ? at::kShort : size == 4 ? at::kInt : at::kLong;
}

bool storable(const std::string& text) { return is_utf8(text) && text.find('\0') == std::string::npos; }

std::string has_grad(const std::string& name) { return name + ".requires_grad"; }
std::string is_empty(const std::string& name) { return name + ".empty"; }
std::string device(const std::string& name) { return name + ".device"; }
std::string strides(const std::string& name) { return name + ".strides"; }

at::Device device_for(const StateReader& in, const std::string& name, const at::Tensor& present) {
  if (present.defined()) return present.device();
  if (in.get_string(device(name)) == "cuda" && at::hasCUDA()) return at::kCUDA;
  return at::kCPU;
}

}  // namespace

std::string class_name(const std::type_info& type) {
  int status = 0;
  // Demangled, because people compare it in messages.
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return name ? name.get() : type.name();
}

void refuse_size(const std::string& name, std::size_t recorded, std::size_t here) {
  throw RefusedError("refused: '" + name + "' has " + std::to_string(recorded) +
                     " numbers in the checkpoint, and " + std::to_string(here) + " in this program");
}

void refuse_text(const std::string& name) {
  throw RefusedError("refused: '" + name +
                     "' holds a state that this engine or distribution of <random> cannot read; the "
                     "checkpoint is of another program or another standard library");
}

void refuse_keys(const std::string& name) {
  throw RefusedError(
      "refused: the map '" + name +
      "' has another number of values than of different keys in the checkpoint; this program may "
      "compare its keys in another way");
}

// No tensor has zero elements here, so that every tool for HDF5 reads the file.
void put_numbers(StateWriter& out, const std::string& name, const void* numbers, std::size_t count,
                 std::size_t size, bool floating) {
  out.put(is_empty(name), count == 0);
  if (count == 0) return;
  const at::Tensor row = at::empty({static_cast<std::int64_t>(count)}, scalar_type(size, floating));
  std::memcpy(row.mutable_data_ptr(), numbers, count * size);
  out.put_tensor(name, row);
}

void get_numbers(const StateReader& in, const std::string& name, std::size_t size, bool floating,
                 const std::function<void*(std::size_t count)>& place) {
  if (in.get_bool(is_empty(name))) {
    place(0);
    return;
  }
  const at::Tensor row = in.get_tensor(name).contiguous();
  // Compared before a byte is copied: the size decides how much is read.
  if (row.scalar_type() != scalar_type(size, floating) || row.dim() != 1) {
    throw RefusedError("refused: '" + name + "' is a tensor of another type or shape in the checkpoint");
  }
  void* const to = place(static_cast<std::size_t>(row.numel()));
  std::memcpy(to, row.const_data_ptr(), row.nbytes());
}

void put_text(StateWriter& out, const std::string& name, const std::string& text) {
  // JSON cannot hold every text, so the others become a tensor of bytes.
  if (storable(text)) {
    out.put(name, text);
  } else {
    put_numbers(out, name + ".bytes", text.data(), text.size(), 1, false);
  }
}

std::string get_text(const StateReader& in, const std::string& name) {
  const std::string bytes = name + ".bytes";
  if (!in.has_tensor(bytes)) return in.get_string(name);
  std::string text;
  get_numbers(in, bytes, 1, false, [&](std::size_t count) {
    text.resize(count);
    return text.data();
  });
  return text;
}

void put_tensor(StateWriter& out, const std::string& name, const at::Tensor& tensor) {
  out.put(name + ".defined", tensor.defined());
  if (!tensor.defined()) return;
  // A tensor with a graph comes back as a leaf without one.
  out.put(has_grad(name), tensor.is_leaf() && tensor.requires_grad());
  // Only the kind of device, and as a note: the run may continue on another GPU, or on a CPU.
  out.note(device(name), std::string(tensor.is_cuda() ? "cuda" : "cpu"));
  // ATen chooses kernels by them, so they decide about the last bits. A view with holes comes back without
  // them.
  if (auto unusual = unusual_strides(tensor); unusual && dense_strides(tensor.sizes(), *unusual)) {
    out.put(strides(name), *std::move(unusual));
  }
  out.put_tensor(name, tensor.detach());
}

at::Tensor get_tensor(const StateReader& in, const std::string& name, const at::Tensor& present) {
  if (!in.get_bool(name + ".defined")) return {};
  const bool grad = in.get_bool(has_grad(name));
  at::Tensor tensor = in.get_tensor(name);
  if (in.has(strides(name))) {
    const auto recorded = in.get_ints(strides(name));
    if (dense_strides(tensor.sizes(), recorded)) {
      tensor = at::empty_strided(tensor.sizes(), recorded, tensor.options()).copy_(tensor);
    }
  }
  tensor = tensor.to(device_for(in, name, present));
  return tensor.set_requires_grad(grad);
}

void put_engine(StateWriter& out, const std::string& name, const std::string& text) {
  std::istringstream words(text);
  // A locale of the program may group digits, and a number would then end at its first separator.
  words.imbue(std::locale::classic());
  // Engines of <random> write their state as whole numbers; as numbers they need less than as text.
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t number = 0; words >> number;) numbers.push_back(number);
  if (!words.eof() || numbers.empty()) {
    throw UsageError("'" + name +
                     "' is an engine whose text is not whole numbers: give it a class with "
                     "save() and load()");
  }
  put_numbers(out, name, numbers.data(), numbers.size(), sizeof(std::uint64_t), false);
}

std::string get_engine(const StateReader& in, const std::string& name) {
  std::vector<std::uint64_t> numbers;
  get_numbers(in, name, sizeof(std::uint64_t), false, [&](std::size_t count) {
    numbers.resize(count);
    return numbers.data();
  });
  std::string text;
  for (const std::uint64_t number : numbers) text += (text.empty() ? "" : " ") + std::to_string(number);
  return text;
}

}}}  // namespace holdfast::v0_2::value_io
