#include "holdfast/precision/autocast.h"

#include <ATen/autocast_mode.h>

namespace holdfast { inline namespace v0_2 {

namespace autocast = at::autocast;

AutocastGuard::AutocastGuard(Precision precision, c10::DeviceType device) : device_(device) {
  const auto type = autocast_type(precision);
  const bool enabled = autocast::is_autocast_enabled(device);
  // Nothing to switch: the guard then costs two look-ups.
  if (!type && !enabled) return;
  was_enabled_ = enabled;
  was_type_ = autocast::get_autocast_dtype(device);
  was_caching_ = autocast::is_autocast_cache_enabled();
  // Off as well as on: an FP32 scope within an autocast one must compute in FP32.
  autocast::set_autocast_enabled(device, type.has_value());
  if (type) autocast::set_autocast_dtype(device, *type);
  // The cache casts each weight once per scope instead of once per use.
  autocast::set_autocast_cache_enabled(true);
  // Nested scopes share one cache, and only the outermost may drop it.
  autocast::increment_nesting();
  open_ = true;
}

AutocastGuard::~AutocastGuard() {
  if (!open_) return;
  // The outermost scope drops the cached casts: the optimizer's step that follows makes them stale.
  if (autocast::decrement_nesting() == 0) autocast::clear_cache();
  autocast::set_autocast_enabled(device_, was_enabled_);
  autocast::set_autocast_dtype(device_, was_type_);
  autocast::set_autocast_cache_enabled(was_caching_);
}

}}  // namespace holdfast::v0_2
