#include "holdfast/checkpoint/internal/image_stager.h"

#include <algorithm>
#include <string>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast::inline v1::internal {

void ImageStager::fit(std::vector<TensorSpec> tensors, std::uint64_t attribute_capacity) {
  if (plan_ && plan_->attribute_capacity >= attribute_capacity && plan_->layout->tensors() == tensors) return;
  // Never shrinks: a state that outgrew its room once would outgrow it again.
  if (plan_) attribute_capacity = std::max(attribute_capacity, plan_->attribute_capacity);
  plan_ = make_file_plan(std::move(tensors), attribute_capacity);
  pool_.use_plan(plan_);
  pool_.prepare_with(source_.image_preparation());
}

void ImageStager::check_source() {
  try {
    check_file_plan(source_.describe(), attribute_capacity_for(source_.attributes()));
  } catch (const RefusedError& error) {  // nothing refuses it: the program names its tensors so
    throw UsageError(std::string("this training state cannot be stored: ") + error.what());
  }
}

void ImageStager::plan_ahead() {
  fit(source_.describe(), std::max(kDefaultAttributeCapacity, attribute_capacity_for(source_.attributes())));
}

Staged ImageStager::stage(const RunRecord& record, Part part) {
  Attributes attributes = source_.attributes();
  put_run_record(attributes, record);
  fit(source_.describe(), attribute_capacity_for(attributes));

  auto snapshot = std::make_shared<Snapshot>();
  snapshot->layout = plan_->layout;
  snapshot->arena = pool_.take();
  snapshot->attributes = std::move(attributes);
  snapshot->step = source_.step();
  source_.copy_tensors(*plan_->layout, snapshot->arena->bytes(), part);
  return {.snapshot = std::move(snapshot), .plan = plan_};
}

}  // namespace holdfast::inline v1::internal
