// Which tensors of modules a save records by digest alone (Frozen::digest), and what it takes to be right:
//
// - Only a start that has the same bytes before it loads can resume. So a tensor is recorded by digest only
//   while its bytes are those that the program had at the first look, in resume(), before a load.
// - A digest is computed anew only if the tensor may have changed: its object, memory, form or version
//   (at::Tensor::_version()) is another, it was not frozen at the last look, or it is a buffer. Writes to a
//   parameter by data_ptr(), .data() or a CUDA graph leave no trace; look_again() finds them.
//
// Errors: those of the tensors' devices. Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "holdfast/snapshot/attributes.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/state/module_options.h"
#include "holdfast/state/module_state.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// As the file's digest of the tensor: of its bytes in logical order.
Digest digest_of_tensor(const at::Tensor& tensor);

class FrozenTensors {
 public:
  // Throws UsageError for options that contradict each other.
  void add(const std::string& module, const ModuleOptions& options);
  bool any() const { return !modules_.empty(); }
  // Sets ModuleTensor::digested. The first call for a tensor notes what the program has made.
  void mark(std::span<const NamedModule> modules, ModuleInventory& inventory);
  void put_attributes(const ModuleInventory& inventory, Attributes& out);

  Digest present(const std::string& name, const at::Tensor& tensor);
  // Holdfast itself has written to the tensor.
  void written(const std::string& name);
  // Names of tensors that are recorded by digest in `recorded`, and have other bytes here. Of those that also
  // differ in name, type or shape it says nothing: module_differences() does.
  std::vector<std::string> other_bytes(const ModuleInventory& inventory, const Attributes& recorded);
  // Reads all marked tensors. Names of those that have changed unseen; the next mark() knows.
  std::vector<std::string> look_again(const ModuleInventory& inventory);

 private:
  // A tensor as it was when its digest was computed. Weak pointers keep the addresses from being used again.
  class Look {
   public:
    explicit Look(const at::Tensor& tensor);
    bool still(const at::Tensor& tensor) const;  // false: it may have changed since

   private:
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> object_;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
    const void* data_;
    at::ScalarType type_;
    std::vector<std::int64_t> sizes_, strides_;
    std::optional<std::int64_t> version_;  // nullopt: it has none, and may change at any time
  };
  struct Known {
    std::optional<Digest> made;  // at the first look
    std::optional<Look> seen;    // when `present` was computed
    Digest present;
    bool told = false;  // the log says that it is stored
  };

  std::map<std::string, ModuleOptions> modules_;  // with Frozen::digest
  std::map<std::string, Known> known_;            // by the tensor's name
};

}}}  // namespace holdfast::v0_2::internal
