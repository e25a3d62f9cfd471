#include "holdfast/format/internal/hdf5_handle.h"

#include <new>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

herr_t take_description(unsigned /*depth*/, const H5E_error2_t* error, void* text) {
  try {
    if (error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
  } catch (const std::bad_alloc&) {  // an exception must not pass through libhdf5
  }
  return 0;
}

[[noreturn]] void fail(std::string_view doing) {
  std::string innermost;
  // Downward: the last description that is taken is the innermost, which names the cause.
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, take_description, &innermost);
  throw RefusedError("cannot lay out the checkpoint file: " + std::string(doing) + ": HDF5 says '" +
                     innermost + "'");
}

}  // namespace

Hdf5Handle::Hdf5Handle(hid_t id, Close close, std::string_view doing) : id_(id), close_(close) {
  if (id < 0) fail(doing);
}

// The handle is given up first: a failed close must not be repeated by the destructor.
void Hdf5Handle::close(std::string_view doing) { check_hdf5(close_(std::exchange(id_, -1)), doing); }

void check_hdf5(herr_t status, std::string_view doing) {
  if (status < 0) fail(doing);
}

QuietHdf5::QuietHdf5() {
  H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
  // libhdf5 would print its whole error stack to standard error; the message of fail() says it in one line.
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

// Restored, because HDF5 code of the user's program may rely on its own setting.
QuietHdf5::~QuietHdf5() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }

}}}  // namespace holdfast::v0_2::internal
