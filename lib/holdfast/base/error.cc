#include "holdfast/base/error.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Advice that follows from the errno alone.
const char* usual_remedy(int code) {
  switch (code) {
    case ENOSPC:
      return "free space on the volume, or keep fewer checkpoints (CheckpointerOptions::keep; --keep in "
             "Holdfast's example)";
    case EDQUOT:
      return "raise the quota, or keep fewer checkpoints (CheckpointerOptions::keep; --keep in Holdfast's "
             "example)";
    case EROFS:
      return "the file system is mounted read-only: look for disk errors (dmesg), then remount it";
    case EACCES:
    case EPERM:
      return "check its owner and mode";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EIO:
    case ENODATA:
    case EILSEQ:
    case EREMOTEIO:
      return "the device reported an error: look at dmesg, and replace the volume if it repeats";
    case EBADMSG:
    case EUCLEAN:
      return "the file system is damaged: look at dmesg, unmount it, and check it (fsck)";
    case ESTALE:
      return "the network file system went away: mount it again";
    case ELOOP:
      return "symbolic links are not followed here: use the real path";
    default:
      return nullptr;
  }
}

std::string io_message(const std::string& operation, const std::string& path, int code,
                       const std::string& remedy) {
  std::string text = operation;
  if (!path.empty()) text += ' ' + path;
  // The _np forms return constant strings. strerror() may use one buffer for all threads.
  const char* description = strerrordesc_np(code);
  const char* name = strerrorname_np(code);
  text += ": ";
  text += description != nullptr ? description : "unknown error";
  text += " (";
  text += name != nullptr ? std::string(name) : "errno " + std::to_string(code);
  text += ')';
  const char* usual = usual_remedy(code);
  if (!remedy.empty()) {
    // Advice from the caller knows the situation, so it replaces the general one.
    text += "; " + remedy;
  } else if (usual != nullptr) {
    text += "; ";
    text += usual;
  }
  return text;
}

// Made at the start, while there is memory. Copies share its text, so a copy allocates nothing.
const Error kNoMemoryLeft(
    "out of memory; checkpoints that were acknowledged stand: use a machine with more memory, or raise the "
    "process's limit (ulimit -v, the container's memory)",
    ExitCode::io_failed);

}  // namespace

Error::Error(const std::string& message, ExitCode code)
    // Paths and foreign messages may hold any byte; no exception's text can control the terminal.
    : std::runtime_error(terminal_text(message)), code_(code) {}

const char* what_of(const std::exception& error) noexcept {
  // The text of bad_alloc ("std::bad_alloc") tells a user nothing.
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? kOutOfMemory : error.what();
}

OutOfMemoryError::OutOfMemoryError() : Error(kNoMemoryLeft) {}

IoError::IoError(std::string operation, std::string path, int code, const std::string& remedy)
    : Error(io_message(operation, path, code, remedy), ExitCode::io_failed),
      operation_(std::move(operation)),
      path_(std::move(path)),
      code_(code) {}

}}  // namespace holdfast::v0_2
