#include "holdfast/checkpoint/internal/image_stager.h"

#include <algorithm>
#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"

namespace holdfast::inline v1::internal {
namespace {

constexpr std::size_t kMostBeside = 50'000;

}  // namespace

void ImageStager::fit(std::vector<TensorSpec> tensors, std::uint64_t attribute_capacity) {
  const auto fits = [&](const FilePlan& plan) {
    return plan.attribute_capacity >= attribute_capacity && plan.layout->tensors() == tensors;
  };
  if (plan_ && fits(*plan_)) return;
  // Never shrinks: a state that outgrew its room once would outgrow it again.
  if (plan_) attribute_capacity = std::max(attribute_capacity, plan_->attribute_capacity);
  std::shared_ptr<const FilePlan> plan = planned_beside();
  plan_ = plan && fits(*plan) ? std::move(plan) : make_file_plan(std::move(tensors), attribute_capacity);
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

void ImageStager::plan_beside(std::vector<TensorSpec> tensors, std::uint64_t attribute_capacity) noexcept {
  if (beside_.valid() || tensors.size() > kMostBeside || !plans_beside_others()) return;
  try {
    beside_ = std::async(std::launch::async, [tensors = std::move(tensors), attribute_capacity]() mutable {
      return make_file_plan(std::move(tensors), attribute_capacity);
    });
  } catch (const std::exception& error) {
    log_debug("no thread to plan the file: {}", what_of(error));
  }
}

// Whatever is wrong with it is found again, and said, by whoever makes the plan that is needed.
std::shared_ptr<const FilePlan> ImageStager::planned_beside() noexcept {
  if (!beside_.valid()) return nullptr;
  try {
    return beside_.get();
  } catch (const std::exception& error) {
    log_debug("the plan for the checkpoint's tensors: {}", what_of(error));
    return nullptr;
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
