// Counts the ATen operators that this thread calls: all of them by name, and those that no other operator
// called, which on a device is about the number of kernels.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace holdfast::test {

class OperatorCounts {
 public:
  OperatorCounts() {
    now_ = {};
    depth_ = 0;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&begin, &end).scopes({at::RecordScope::FUNCTION}));
  }
  ~OperatorCounts() { at::removeCallback(handle_); }
  OperatorCounts(const OperatorCounts&) = delete;
  OperatorCounts& operator=(const OperatorCounts&) = delete;

  // "aten::copy_"
  std::int64_t of(const std::string& name) const {
    const auto found = now_.all.find(name);
    return found == now_.all.end() ? 0 : found->second;
  }
  // Called by the program itself.
  std::int64_t outermost(const std::string& name) const {
    const auto found = now_.outermost.find(name);
    return found == now_.outermost.end() ? 0 : found->second;
  }
  // Values that were read from tensors: Tensor::item() and everything that uses it.
  std::int64_t reads() const { return of("aten::_local_scalar_dense"); }

 private:
  struct Counted {
    std::map<std::string, std::int64_t> all, outermost;
  };
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    const std::string name = function.name();
    ++now_.all[name];
    if (depth_++ == 0) ++now_.outermost[name];
    return nullptr;
  }
  static void end(const at::RecordFunction& /*function*/, at::ObserverContext* /*context*/) { --depth_; }

  static inline thread_local Counted now_;
  static inline thread_local int depth_ = 0;
  at::CallbackHandle handle_;
};

}  // namespace holdfast::test
