// A shared library that may be missing.
//
//   const LoadedLibrary driver("libcuda.so.1");
//   if (const auto version = driver.function<int(int*)>("cuDriverGetVersion")) …
//
// Errors: none. Threads: one.
#pragma once

#include <dlfcn.h>

#include <string>

namespace holdfast { inline namespace v0_2 {

class LoadedLibrary {
 public:
  explicit LoadedLibrary(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  // Stays loaded: drivers start threads that must not lose their code.
  ~LoadedLibrary() = default;
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;

  bool loaded() const { return handle_ != nullptr; }
  // Null if there is no such function.
  template <class Function>
  Function* function(const char* name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

}}  // namespace holdfast::v0_2
