#include "holdfast/format/internal/hdf5/hdf5_handle.h"

#include <new>
#include <string>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

struct Cause {
  std::string description;
  bool memory = false;
};

herr_t take_cause(unsigned /*depth*/, const H5E_error2_t* error, void* cause) {
  auto& to = *static_cast<Cause*>(cause);
  to.memory = error->maj_num == H5E_RESOURCE;
  try {
    if (error->desc != nullptr) to.description = error->desc;
  } catch (const std::bad_alloc&) {  // an exception must not pass through libhdf5
  }
  return 0;
}

// libhdf5 names errno where a system call failed, and only there. 0: it names none.
int system_error(std::string_view description) {
  constexpr std::string_view kBefore = "errno = ";
  const std::size_t at = description.find(kBefore);
  if (at == std::string_view::npos) return 0;
  const std::string_view number = description.substr(at + kBefore.size());
  return static_cast<int>(parse_int(number.substr(0, number.find(','))).value_or(0));
}

[[noreturn]] void fail(std::string_view doing) {
  Cause cause;
  // Downward: the last error that is taken is the innermost.
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, take_cause, &cause);
  if (cause.memory) throw std::bad_alloc();
  if (const int error = system_error(cause.description); error != 0) {
    throw IoError("lay out a checkpoint file,", std::string(doing), error,
                  "the file plan is made in /dev/shm or in $TMPDIR");
  }
  throw RefusedError("cannot lay out the checkpoint file: " + std::string(doing) + ": HDF5 says '" +
                     printable(cause.description, 400) + "'");
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
