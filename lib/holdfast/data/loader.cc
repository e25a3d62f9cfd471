#include "holdfast/data/loader.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/data/internal/ordered_pipeline.h"

namespace holdfast { inline namespace v0_2 {
namespace {

PlanOptions plan_options(const LoaderOptions& options, std::int64_t size) {
  return {.size = size,
          .batch_size = options.batch_size,
          .accumulation = options.accumulation,
          .epochs = options.epochs,
          .drop_last = options.drop_last,
          .shard = options.shard};
}

void check(const LoaderOptions& options) {
  if (options.workers < 0 || options.workers > 1024) {
    throw UsageError("the loader's workers must be 0...1024, not " + std::to_string(options.workers));
  }
  if (options.prefetch < 0) {
    throw UsageError("the loader's prefetch must not be negative, it is " + std::to_string(options.prefetch));
  }
  if (options.pin_memory && !at::hasCUDA()) {
    throw UsageError("pin_memory needs a CUDA device, and there is none");
  }
}

}  // namespace

class Loader::Impl {
 public:
  Impl(std::unique_ptr<internal::BatchMaker> maker, const LoaderOptions& options)
      : maker_(std::move(maker)),
        options_(options),
        pool_(options.pin_memory),
        size_(maker_->size()),
        plan_(plan_options(options, size_), {}),
        whole_plan_(plan_) {
    check(options);
    // The data set may compute its fingerprint with tensors.
    const at::NoGradGuard no_grad;
    fingerprint_ = maker_->fingerprint();
  }

  std::optional<Batch> next() {
    // After a failure no batch is delivered, because the order would have a hole.
    if (failure_) std::rethrow_exception(failure_);
    if (round_ && round_over_) return std::nullopt;
    if (!pipeline_) start();
    if (!waiting_) waiting_ = pipeline_->next();
    // A rank without samples in a short last batch learns of the end from the next epoch's first.
    round_over_ = !waiting_ || (round_ && waiting_->first.epoch != *round_);
    if (round_over_) return std::nullopt;
    const Slice slice = waiting_->first;
    std::vector<at::Tensor> fields = finish(slice, std::move(std::exchange(waiting_, std::nullopt)->second));
    // Delivered is not applied: a batch may wait for its update when a save comes.
    delivered_ = slice.after;
    ++pending_batches_;
    if (slice.completes_update) ++pending_updates_;
    Batch batch;
    // A data set of one field has it as inputs and as targets.
    batch.inputs = fields.front();
    batch.targets = fields.back();
    batch.fields = std::move(fields);
    batch.cursor = slice.after;
    batch.epoch = slice.epoch;
    batch.last_in_epoch = slice.last_in_epoch;
    batch.completes_update = slice.completes_update;
    completes_update_ = slice.completes_update;
    round_over_ = slice.last_in_epoch;
    return batch;
  }

  void applied(Cursor cursor) {
    // The end of an epoch has two names: {epoch, size} and {epoch + 1, 0}.
    const bool at_epoch_end = delivered_.samples == size_ && cursor == Cursor{delivered_.epoch + 1, 0};
    // Neither backwards nor beyond what was delivered: such a report is a mistake of the loop.
    if (cursor < applied_ || (cursor > delivered_ && !at_epoch_end)) {
      throw UsageError(
          "an update reports (epoch " + std::to_string(cursor.epoch) + ", sample " +
          std::to_string(cursor.samples) +
          ") as applied, which the loader has not delivered since the last update: pass the cursor of "
          "the batch just applied");
    }
    applied_ = cursor;
    pending_batches_ = pending_updates_ = 0;
  }

  void applied_all_delivered() {
    // One update is the only case in which the loader knows what was applied.
    if (pending_batches_ > 0 && (pending_updates_ != 1 || !completes_update_)) {
      throw UsageError(std::to_string(pending_batches_) +
                       " batches were delivered between two optimizer updates, but an update takes " +
                       std::to_string(options_.accumulation) +
                       ": set LoaderOptions::accumulation, or report after_step({.applied = batch->cursor})");
    }
    applied(delivered_);
  }

  void go_to(Cursor cursor) {
    plan_ = BatchPlan(plan_options(options_, size_), cursor);  // throws before anything changes
    pipeline_.reset();
    waiting_.reset();
    round_.reset();
    round_over_ = false;
    order_.reset();  // no worker uses it any more
    failure_ = nullptr;
    applied_ = delivered_ = cursor;
    pending_batches_ = pending_updates_ = 0;
  }

  void save(StateWriter& out) const {
    // As one number of the whole update, because the division over ranks may change.
    out.option("batch_size", options_.batch_size * options_.shard.world * options_.accumulation);
    // The division may change, so it is a note. Older checkpoints have it among their options and expect a
    // value of that name here. With one pass nothing else is recorded.
    out.note("accumulation", options_.accumulation);
    if (options_.accumulation > 1) out.environment("accumulation", options_.accumulation);
    out.option("seed", static_cast<std::int64_t>(options_.seed));
    out.option("shuffle", options_.shuffle);
    out.option("drop_last", options_.drop_last);
    out.option("size", size_);
    out.option("fingerprint", fingerprint_);
    maker_->save_options(out);
    out.put("epoch", applied_.epoch);
    out.put("samples", applied_.samples);
  }

  // At the end of an epoch the cursor still has that epoch's number: its round has no batch left.
  std::int64_t first_round() {
    if (!round_) round_ = applied_.epoch;
    return *round_;
  }
  std::int64_t next_round(std::int64_t round) {
    if (stopped_) return EpochRange<Loader>::kOver;
    if (!round_over_) {
      throw UsageError("epoch " + std::to_string(round) +
                       " was left before its last batch: a loop over loader.epochs() takes batches until "
                       "loader.next() has none, or after_step() says stop");
    }
    round_over_ = false;
    round_ = round + 1;
    return *round_;
  }
  void told_to_stop() { stopped_ = true; }

  const LoaderOptions& options() const { return options_; }
  const std::string& fingerprint() const { return fingerprint_; }
  const BatchPlan& whole_plan() const { return whole_plan_; }
  std::int64_t size() const { return size_; }
  Cursor applied_cursor() const { return applied_; }
  DataEnd data_end() const {
    const bool all = applied_ == delivered_ || applied_ == Cursor{delivered_.epoch + 1, 0};
    if (!all || delivered_.samples != size_) return DataEnd::none;
    return delivered_.epoch + 1 == options_.epochs ? DataEnd::run : DataEnd::epoch;
  }

 private:
  // At the first next(): a resume may move the cursor before, and no batch is made for nothing.
  void start() {
    // Two batches for each worker: one is made while the other waits.
    const int depth = options_.prefetch > 0 ? options_.prefetch : 2 * options_.workers;
    pipeline_.emplace([plan = plan_]() mutable { return plan.next(); },
                      [this](const Slice& slice) { return make(slice); }, options_.workers, depth);
  }

  std::vector<at::Tensor> make(const Slice& slice) {
    const at::NoGradGuard no_grad;
    std::vector<std::int64_t> samples;
    samples.reserve(static_cast<std::size_t>(slice.end - slice.begin));
    const auto order = options_.shuffle ? order_of(slice.epoch) : nullptr;
    for (std::int64_t position = slice.begin; position < slice.end; ++position) {
      samples.push_back(order ? (*order)(position) : position);
    }
    return naming(slice, [&] {
      return maker_->make({.seed = options_.seed, .epoch = slice.epoch, .samples = samples}, pool_);
    });
  }

  // Keeps the newest epoch's order. Workers that still make the previous epoch build theirs again, briefly
  // once an epoch.
  std::shared_ptr<const Permutation> order_of(std::int64_t epoch) {
    const std::lock_guard lock(order_mutex_);
    // The threads of the pipeline ask at the same time.
    if (order_ && order_->epoch() == epoch) return order_;
    auto order = std::make_shared<const Permutation>(options_.seed, epoch, size_);
    if (!order_ || epoch > order_->epoch()) order_ = order;
    return order;
  }

  // The pipeline has passed this batch, so a failure is kept: the next call must not continue with the next
  // batch.
  std::vector<at::Tensor> finish(const Slice& slice, std::vector<at::Tensor> made) {
    try {
      return naming(slice, [&] { return maker_->finish(std::move(made)); });
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }

  template <class Call>
  static std::vector<at::Tensor> naming(const Slice& slice, const Call& call) {
    try {
      std::vector<at::Tensor> fields = call();
      if (fields.empty()) throw Error("the data set returned a batch without tensors");
      return fields;
    } catch (const Error& error) {
      throw;  // it says what failed and has its exit code
    } catch (const std::exception& failure) {
      throw Error("loading a batch failed (epoch " + std::to_string(slice.epoch) + ", positions " +
                  std::to_string(slice.begin) + " to " + std::to_string(slice.end - 1) +
                  "): " + failure.what());
    }
  }

  std::unique_ptr<internal::BatchMaker> maker_;
  LoaderOptions options_;
  TensorPool pool_;
  std::int64_t size_;
  BatchPlan plan_;  // where the next pipeline begins
  BatchPlan whole_plan_;
  std::string fingerprint_;
  Cursor applied_;
  Cursor delivered_;
  std::int64_t pending_batches_ = 0;
  std::int64_t pending_updates_ = 0;
  bool completes_update_ = false;
  std::exception_ptr failure_;  // of the last finish()
  // Made, and of the next round.
  std::optional<std::pair<Slice, std::vector<at::Tensor>>> waiting_;
  std::optional<std::int64_t> round_;  // of the loop over epochs()
  bool round_over_ = false;            // it has no batch left
  bool stopped_ = false;
  std::mutex order_mutex_;
  std::shared_ptr<const Permutation> order_;
  // Declared last, so destroyed first: its threads use everything above.
  std::optional<internal::OrderedPipeline<Slice, std::vector<at::Tensor>>> pipeline_;
};

Loader::Loader(std::unique_ptr<internal::BatchMaker> maker, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(maker), options)) {}
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;
Loader::~Loader() = default;

std::optional<Batch> Loader::next() { return impl_->next(); }
void Loader::applied(Cursor cursor) { impl_->applied(cursor); }
void Loader::applied_all_delivered() { impl_->applied_all_delivered(); }
std::int64_t Loader::first_round() { return impl_->first_round(); }
std::int64_t Loader::next_round(std::int64_t round) { return impl_->next_round(round); }
void Loader::told_to_stop() { impl_->told_to_stop(); }
Cursor Loader::cursor() const { return impl_->applied_cursor(); }
DataEnd Loader::data_end() const { return impl_->data_end(); }
void Loader::restart() { impl_->go_to({}); }
std::int64_t Loader::size() const { return impl_->size(); }
std::int64_t Loader::batches_per_epoch() const { return impl_->whole_plan().batches_per_epoch(); }
std::int64_t Loader::updates_per_epoch() const { return impl_->whole_plan().updates_per_epoch(); }
const std::string& Loader::fingerprint() const { return impl_->fingerprint(); }
const LoaderOptions& Loader::options() const { return impl_->options(); }
void Loader::save(StateWriter& out) const { impl_->save(out); }
void Loader::load(const StateReader& in) { impl_->go_to({in.get_int("epoch"), in.get_int("samples")}); }

}}  // namespace holdfast::v0_2
