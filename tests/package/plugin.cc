// A library of a user's own. With Holdfast's static libraries inside, it must show nothing of them to others.
#include "holdfast/base/error.h"
#include "holdfast/store/retention_text.h"

extern "C" [[gnu::visibility("default")]] bool plugin_understands(const char* words) {
  try {
    holdfast::parse_retention(words);
    return true;
  } catch (const holdfast::UsageError&) {
    return false;
  }
}
