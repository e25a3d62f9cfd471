#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/seconds.h"
#include "holdfast/metrics/event_file.h"
#include "holdfast/metrics/exporters.h"
#include "holdfast/metrics/guarded_sink.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// A process with many histograms must not hold them for the whole flush interval.
constexpr std::size_t kLargeBuffer = 1 << 18;

class TensorBoardSink final : public MetricSink {
 public:
  TensorBoardSink(FileSystem& file_system, std::filesystem::path directory, const TensorBoardOptions& options,
                  const Clock& clock)
      : file_system_(file_system), directory_(std::move(directory)), options_(options), clock_(clock) {}

  void begin(const BeginEvent& event) override {
    const WallTime now = clock_.wall_now();
    there_ = tags_at(file_system_, directory_, event.step);
    begun_at_ = event.step;
    file_.emplace(file_system_, directory_, now);
    last_step_ = event.step;
    last_system_step_ = event.step;
    // TensorBoard discards earlier points of later steps ("restart"), so recomputed steps appear once. What
    // earlier attempts wrote of `step` itself stays: nothing repeats most of it.
    file_->start_at(event.step + 1, now);
    // Killed between the save and the next write, the earlier attempt has not written them.
    const auto put_known = [&](const char* tag, double value) {
      if (event.step > 0 && std::isfinite(value)) put({{tag, value}}, event.step, now);
    };
    put_known("train/loss", event.loss);
    put_known("train/lr", event.learning_rate);
    flush();
  }

  void step(const StepEvent& event) override {
    open(event.step - 1);
    // One that is reported twice must be one point.
    if (event.step <= last_step_) return;
    last_step_ = event.step;
    std::vector<Scalar> values{{"train/loss", event.loss},
                               {"train/lr", event.learning_rate},
                               {"train/images_per_second", event.images_per_s},
                               {"train/epoch", static_cast<double>(event.epoch)}};
    if (event.accuracy) values.push_back({"train/accuracy", *event.accuracy});
    file_->scalars(values, event.step, at(event.at));
    if (event.saved) saved(*event.saved, at(event.at));
    // What a checkpoint covers is written at once: after a crash the curves reach at least as far as the
    // state.
    if (event.saved || file_->unwritten() > kLargeBuffer || clock_.now() - flushed_ >= options_.flush_every)
      flush();
  }

  void evaluation(const EvaluationEvent& event) override {
    open(event.step);
    if (event.step <= last_evaluation_) return;
    last_evaluation_ = event.step;
    put({{"val/accuracy", event.accuracy}, {"val/loss", event.loss}}, event.step, at(event.at));
    flush();
  }

  void histogram(const HistogramEvent& event) override {
    open(event.step - 1);
    file_->histogram(event, at(event.at));
  }

  // One at most for each step, so that steps increase in every curve.
  void system(const SystemEvent& event) override {
    // Without a step since the last sample, a second point would stand above the first.
    if (!file_ || last_step_ <= last_system_step_) return;
    last_system_step_ = last_step_;
    std::vector<Scalar> values{{"system/cpu_cores", event.cpu_cores},
                               {"system/resident_bytes", static_cast<double>(event.resident_bytes)},
                               {"system/disk_read_megabytes_per_second", event.read_bytes_per_s / 1e6},
                               {"system/disk_written_megabytes_per_second", event.written_bytes_per_s / 1e6}};
    std::vector<std::string> tags;
    tags.reserve(2 * event.gpus.size());
    // `values` keeps views of these texts; reserve() above keeps them in place.
    for (const GpuFigures& gpu : event.gpus) {
      const std::string prefix = "system/gpu" + std::to_string(gpu.index) + '_';
      tags.push_back(prefix + "memory_bytes");
      values.push_back({tags.back(), static_cast<double>(gpu.memory_used)});
      tags.push_back(prefix + "utilization");
      if (gpu.utilization) values.push_back({tags.back(), *gpu.utilization});
    }
    file_->scalars(values, last_step_, at(event.at));
    flush();
  }

  void status(const StatusEvent& event) override {
    if (file_ && event.newest) saved(*event.newest, at(event.at));
  }

  void flush() override {
    if (!file_) return;
    flushed_ = clock_.now();
    file_->flush();
  }

  // BackgroundSinks flushes before it calls it.
  std::function<void()> row_sync() override { return file_ ? file_->sync() : nullptr; }

 private:
  WallTime at(WallTime time) const { return time == WallTime{} ? clock_.wall_now() : time; }

  // A loop that does not call begin() resumes at its first event.
  void open(std::int64_t step) {
    if (!file_) begin({.step = step});
  }

  void put(std::vector<Scalar> values, std::int64_t step, WallTime time) {
    // An evaluation, or the save of a boundary, may come again at the resumed step.
    if (step == begun_at_) std::erase_if(values, [&](const Scalar& one) { return there_.contains(one.tag); });
    if (!values.empty()) file_->scalars(values, step, time);
  }

  void saved(const SavedEvent& save, WallTime time) {
    // One save comes twice, with a step and with a status, and must be one point.
    if (save.step <= last_saved_) return;
    last_saved_ = save.step;
    put({{"checkpoint/commit_seconds", in_seconds(save.write + save.commit)},
         {"checkpoint/training_waited_seconds", in_seconds(save.blocked)},
         {"checkpoint/bytes", static_cast<double>(save.bytes)},
         {"checkpoint/work_at_risk_seconds", in_seconds(save.risk_time)}},
        save.step, time);
  }

  FileSystem& file_system_;
  std::filesystem::path directory_;
  TensorBoardOptions options_;
  const Clock& clock_;
  std::optional<EventFile> file_;
  SteadyTime flushed_{};
  std::int64_t last_step_ = 0;
  std::int64_t last_system_step_ = 0;
  std::int64_t last_evaluation_ = -1;
  std::int64_t begun_at_ = 0;
  std::set<std::string, std::less<>> there_;  // tags that earlier attempts' points have there
  std::int64_t last_saved_ = -1;
};

}  // namespace

std::unique_ptr<MetricSink> tensorboard_sink(FileSystem& file_system, std::filesystem::path directory,
                                             const TensorBoardOptions& options, const Clock& clock) {
  std::string target = directory.string();
  return std::make_unique<GuardedSink>(
      std::move(target),
      std::make_unique<TensorBoardSink>(file_system, std::move(directory), options, clock));
}

}}  // namespace holdfast::v0_2
