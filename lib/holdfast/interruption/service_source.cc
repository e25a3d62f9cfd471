#include "holdfast/interruption/service_source.h"

#include <new>

namespace holdfast { inline namespace v0_2 {

std::vector<Notice> ServiceSource::poll() {
  try {
    return conversation_->poll();
  } catch (const std::bad_alloc&) {
    // The notices of this poll are lost, so the source must repeat them.
    conversation_->tell_again();
    throw;
  }
}

}}  // namespace holdfast::v0_2
