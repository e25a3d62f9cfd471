#include <cstdio>
#include <string>

#include "holdfast/base/error.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/store/retention_text.h"

namespace {

// An exception of the library crosses its border, and is caught as what it is and as its base.
bool catches_exceptions() {
  int caught = 0;
  try {
    holdfast::parse_retention("no such word");
  } catch (const holdfast::UsageError&) {
    ++caught;
  }
  try {
    holdfast::parse_retention("no such word");
  } catch (const holdfast::Error&) {
    ++caught;
  }
  return caught == 2;
}

}  // namespace

int main() {
  // The digest of nothing is a constant of XXH3: a wrong one means another library, or other flags.
  const std::string digest = holdfast::to_hex(holdfast::digest_of({}));
  std::printf("%s\n", digest.c_str());
  return digest == "99aa06d3014798d86001c324468d497f" && catches_exceptions() ? 0 : 1;
}
