// libhdf5's handles with an owner, and its errors as exceptions.
//
// A failed call throws with what the program was doing and libhdf5's innermost message. libhdf5 prints
// nothing meanwhile.
// Errors: IoError where a system call failed; std::bad_alloc; otherwise RefusedError, because a tensor list
// and a capacity are the only inputs. Threads: libhdf5 has process-wide state; hdf5_layout.cc holds one lock
// around all of it.
#pragma once

#include <hdf5.h>

#include <string_view>
#include <utility>

namespace holdfast { inline namespace v0_2 { namespace internal {

class Hdf5Handle {
 public:
  using Close = herr_t (*)(hid_t);

  // Throws if `id` is negative: libhdf5's way to report a failure.
  Hdf5Handle(hid_t id, Close close, std::string_view doing);
  ~Hdf5Handle() {
    if (id_ >= 0) close_(id_);
  }
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&&) = delete;

  hid_t get() const { return id_; }
  // Closes now, and reports errors that only closing can see.
  void close(std::string_view doing);

 private:
  hid_t id_;
  Close close_;
};

// Throws if `status` is negative.
void check_hdf5(herr_t status, std::string_view doing);

// Suppresses libhdf5's own error output during its lifetime.
class QuietHdf5 {
 public:
  QuietHdf5();
  ~QuietHdf5();
  QuietHdf5(const QuietHdf5&) = delete;
  QuietHdf5& operator=(const QuietHdf5&) = delete;

 private:
  H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

}}}  // namespace holdfast::v0_2::internal
