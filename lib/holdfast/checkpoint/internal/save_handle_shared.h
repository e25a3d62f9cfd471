// What a SaveHandle and the writer share about one save. It leaves `staged` once and for good; every waiter
// is woken then.
//
// Threads: any, under its mutex.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "holdfast/checkpoint/save_handle.h"

namespace holdfast::inline v1 {

struct SaveHandle::Shared {
  static constexpr std::size_t kLongestName = 63;

  explicit Shared(std::int64_t at_step) : step(at_step) { text.reserve(kLongestName); }

  // `text` is the checkpoint's name, the error, or empty. The first outcome stays. Never fails: there is room
  // for a name, and an error that finds no memory becomes a shorter one.
  void settle(SaveStatus outcome, std::string_view outcome_text) noexcept;

  const std::int64_t step;
  std::mutex mutex;
  std::condition_variable settled;
  SaveStatus status = SaveStatus::staged;
  std::string text;
};

}  // namespace holdfast::inline v1
