#include "holdfast/staging/image_stager.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/format/share_writer.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// More tensors than any real model has; libhdf5 would need seconds for them.
constexpr std::size_t kMostBeside = 50'000;
constexpr std::uint64_t kPage = 4096;

// Runs `work`. What a file cannot hold is no refusal: the program chose these names and sizes.
template <class Work>
void or_unsavable(const Work& work) {
  try {
    work();
  } catch (const RefusedError& error) {
    throw UnsavableError(std::string("this training state cannot be stored: ") + error.what());
  }
}

}  // namespace

void ImageStager::fit(const Attributes& attributes) {
  or_unsavable([&] {
    std::vector<TensorSpec> tensors = source_.describe();
    const std::uint64_t wanted = attribute_capacity_for(attributes, tensors);
    fit(std::move(tensors), attribute_bytes(attributes), wanted);
  });
}

void ImageStager::fit(std::vector<TensorSpec> tensors, std::uint64_t needed,
                      std::uint64_t attribute_capacity) {
  const auto fits = [&](const FilePlan& plan, std::uint64_t capacity) {
    return plan.attribute_capacity >= capacity && plan.layout->tensors() == tensors;
  };
  if (plan_ && fits(*plan_, needed)) {
    if (sees_.empty() || owners_of(tensors) == owners_) return;
    // A new plan object for the same file, so that images made for the old shares are not used again.
    plan_ = std::make_shared<const FilePlan>(*plan_);
    pool_.use_plan(plan_);
    return divide_plan();
  }
  // The capacity never shrinks: a state that outgrew it once would outgrow it again.
  if (plan_) attribute_capacity = std::max(attribute_capacity, plan_->attribute_capacity);
  std::shared_ptr<const FilePlan> plan = planned_beside();
  plan_ = plan && fits(*plan, attribute_capacity) ? std::move(plan)
                                                  : make_file_plan(std::move(tensors), attribute_capacity);
  pool_.use_plan(plan_);
  divide_plan();
}

// The owner of each tensor. Tensors that are not replicated belong to rank 0.
std::vector<int> ImageStager::owners_of(const std::vector<TensorSpec>& tensors) const {
  std::vector<int> owners = owners_by_name(tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (owners[i] == kAnyRank && source_.role(tensors[i]).sharing != Sharing::same) owners[i] = 0;
  }
  return owners;
}

// By tensor. For another rank's own tensors (kRankGroup) the source answers as for its own.
std::vector<bool> ImageStager::trained() const {
  std::vector<bool> trained;
  trained.reserve(plan_->layout->tensors().size());
  for (const TensorSpec& tensor : plan_->layout->tensors()) trained.push_back(source_.role(tensor).trained);
  return trained;
}

// An image with one share alone must not touch or lock pages outside that share.
PrepareImage ImageStager::preparation() const {
  PrepareImage whole = source_.traits().prepare_image;
  if (!whole || rank_ == 0 || !shares_) return whole;
  std::vector<ByteRange> pages;
  // Memory is touched and locked by whole pages.
  for (const ByteRange& staged : share().stages) {
    const ByteRange range{staged.begin / kPage * kPage, (staged.end + kPage - 1) / kPage * kPage};
    if (!pages.empty() && range.begin <= pages.back().end) {
      pages.back().end = std::max(pages.back().end, range.end);
    } else {
      pages.push_back(range);
    }
  }
  return [whole = std::move(whole), pages = std::move(pages)](std::span<std::byte> image) {
    // The pages stay prepared for as long as the image lives.
    auto held = std::make_shared<std::vector<std::shared_ptr<void>>>();
    for (const ByteRange& range : pages) {
      const std::uint64_t end = std::min<std::uint64_t>(range.end, image.size());
      held->push_back(whole(image.subspan(range.begin, end - range.begin)));
    }
    return std::shared_ptr<void>(std::move(held));
  };
}

void ImageStager::divide_among(int rank, std::vector<bool> sees) {
  rank_ = rank;
  sees_ = std::move(sees);
  // Rank 0 may have to stage everything, so its images are always whole.
  if (rank_ != 0) {
    pool_.make_with([this](const FilePlan& plan) {
      return shares_ ? make_share_image(plan, share()) : make_image(plan);
    });
  }
  if (plan_) divide_plan();
}

void ImageStager::divide_plan() {
  // Undivided until all that follows has worked.
  mark_ = 0;
  shares_ = nullptr;
  pool_.prepare_with(source_.traits().prepare_image);
  if (sees_.empty()) return;
  owners_ = owners_of(plan_->layout->tensors());
  try {
    shares_ = std::make_shared<const Shares>(divide(*plan_, {.sees = sees_, .owners = owners_}));
  } catch (const RefusedError& error) {
    if (rank_ == 0) log_warning("rank 0 writes the checkpoints alone: {}", what_of(error));
    return;
  }
  pool_.prepare_with(preparation());
  share_layout_ = layout_of_share(*plan_->layout, *shares_, rank_);
  std::uint64_t mark = 0;
  // Never 0, which means "not divided", and small enough for a vote's number and its negative.
  std::memcpy(&mark, shares_->fingerprint.bytes.data(), sizeof(mark));
  mark_ = static_cast<std::int64_t>(mark >> 2 | 1);
}

void ImageStager::widen(std::uint64_t attribute_capacity) {
  if (!plan_ || plan_->attribute_capacity >= attribute_capacity) return;
  fit(source_.describe(), attribute_capacity, attribute_capacity);
}

void ImageStager::check_source() { check(source_.attributes()); }

void ImageStager::check_record(const RunRecord& record) {
  Attributes attributes = source_.attributes();
  put_run_record(attributes, record);
  check(attributes);
}

void ImageStager::check(const Attributes& attributes) const {
  or_unsavable([&] {
    const std::vector<TensorSpec> tensors = source_.describe();
    check_file_plan(tensors, attribute_capacity_for(attributes, tensors));
  });
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

// An error here is ignored: the thread that makes the needed plan finds it again, and reports it.
std::shared_ptr<const FilePlan> ImageStager::planned_beside() noexcept {
  if (!beside_.valid()) return nullptr;
  try {
    return beside_.get();
  } catch (const std::exception& error) {
    log_debug("the plan for the checkpoint's tensors: {}", what_of(error));
    return nullptr;
  }
}

void ImageStager::plan_ahead() { fit(source_.attributes()); }

Staged ImageStager::stage(const RunRecord& record, Part part, std::int64_t mark) {
  // Attributes, plan and copies share one list of the tensors. Each would otherwise walk the modules and
  // build hundreds of names again, while the training waits.
  const auto list = source_.hold(Hold::list);
  Attributes attributes = source_.attributes();
  put_run_record(attributes, record);
  // Reserves for "false", which is longer than "true": the writer may find numbers that are not finite.
  attributes.set(kRunFinite, false, Role::record);
  fit(attributes);
  attributes.set(kRunFinite, record.finite, Role::record);

  Staged staged{.snapshot = nullptr, .plan = plan_, .layout = plan_->layout};
  if (mark != 0 && mark == mark_) {
    staged.shares = shares_;
    staged.layout = share_layout_;
    staged.bytes = share().staged;
  } else if (mark != 0 && rank_ != 0) {
    // Another rank writes its agreed share or nothing. Rank 0 alone can write the whole state instead.
    throw Error("its layout of the file changed after the ranks agreed on one");
  } else {
    for (const TensorSpec& tensor : plan_->layout->tensors()) staged.bytes += tensor.bytes();
  }

  auto snapshot = std::make_shared<Snapshot>();
  snapshot->layout = plan_->layout;
  snapshot->arena = pool_.take();
  snapshot->attributes = std::move(attributes);
  snapshot->step = source_.position().step;
  snapshot->trained = trained();
  source_.copy(*staged.layout, snapshot->arena->bytes(), part);
  staged.snapshot = std::move(snapshot);
  return staged;
}

}}}  // namespace holdfast::v0_2::internal
