// Whether a call failed because of the one file that it read, and not because of the volume or this machine.
//
// Errors: none. Threads: pure.
#pragma once

#include <cerrno>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

inline bool is_about_this_file(const IoError& error) {
  switch (error.code()) {
    case EIO:
    // The page cache makes EIO of every error of the device. O_DIRECT passes on what the device said.
    case ENODATA:    // the medium lost the bytes
    case EILSEQ:     // the protection data beside them differ
    case EREMOTEIO:  // the device refused that block
    // The file system's own records of this file are damaged.
    case EBADMSG:
    case EUCLEAN:
      return true;
    default:
      return false;
  }
}

}}}  // namespace holdfast::v0_2::internal
