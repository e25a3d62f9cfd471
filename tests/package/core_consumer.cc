#include <cstdio>
#include <stdexcept>
#include <string>
#include <typeinfo>

#include "holdfast/base/error.h"
#include "holdfast/base/last_words.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/interruption/signal_source.h"
#include "holdfast/interruption/sources.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/store/retention_text.h"

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "wrong: %s\n", what);
  ++failures;
}

// An exception of the library crosses its border, and is caught as what it is and as its base.
void library_throws() {
  int caught = 0;
  try {
    holdfast::parse_retention("no such word");
  } catch (const holdfast::UsageError& error) {
    ++caught;
    expect(&typeid(error) == &typeid(holdfast::UsageError), "UsageError has one type in the process");
  }
  try {
    holdfast::parse_retention("no such word");
  } catch (const holdfast::Error&) {
    ++caught;
  }
  expect(caught == 2, "the library's exception is caught");
}

class OwnError : public holdfast::RefusedError {
 public:
  OwnError() : RefusedError("the consumer refuses") {}
};

// And the other way: the library catches what this program throws.
void program_throws() {
  expect(holdfast::run([]() -> int { throw holdfast::RefusedError("this program refuses"); }) == 78,
         "the library catches RefusedError");
  expect(holdfast::run([]() -> int { throw OwnError(); }) == 78,
         "the library catches a class derived from it");
  expect(holdfast::run([]() -> int { throw std::runtime_error("another error"); }) == 70,
         "another exception is not an Error");
}

class OwnSource final : public holdfast::Source {
 public:
  std::string_view name() const override { return "own"; }
  std::vector<holdfast::Notice> poll() override { return {}; }
  holdfast::Duration interval() const override { return std::chrono::seconds(1); }
};

// An object that the library made is cast here.
void casts() {
  const auto made = holdfast::make_sources({.signals = true, .cloud = false});
  const holdfast::SignalSource* signals = nullptr;
  for (const auto& source : made) {
    if (signals == nullptr) signals = dynamic_cast<const holdfast::SignalSource*>(source.get());
  }
  expect(signals != nullptr, "dynamic_cast to SignalSource");
  OwnSource own;
  holdfast::Source& base = own;
  expect(dynamic_cast<OwnSource*>(&base) != nullptr, "dynamic_cast to a class of this program");
  expect(dynamic_cast<holdfast::SignalSource*>(&base) == nullptr, "dynamic_cast to what it is not");
}

}  // namespace

int main() {
  // The digest of nothing is a constant of XXH3: a wrong one means another library, or other flags.
  const std::string digest = holdfast::to_hex(holdfast::digest_of({}));
  std::printf("%s\n", digest.c_str());
  expect(digest == "99aa06d3014798d86001c324468d497f", "the digest of nothing");
  library_throws();
  program_throws();
  casts();
  return failures == 0 ? 0 : 1;
}
