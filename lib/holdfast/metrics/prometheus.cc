#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/seconds.h"
#include "holdfast/metrics/exporters.h"
#include "holdfast/metrics/guarded_sink.h"
#include "holdfast/metrics/prometheus_text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

std::vector<LabeledValue> values_of(const std::map<std::string, std::int64_t>& counts) {
  std::vector<LabeledValue> values;
  values.reserve(counts.size());
  for (const auto& [name, count] : counts) values.emplace_back(name, static_cast<double>(count));
  return values;
}

class PrometheusSink final : public MetricSink {
 public:
  PrometheusSink(FileSystem& file_system, std::filesystem::path file, const PrometheusOptions& options,
                 const Clock& clock)
      : file_system_(file_system),
        file_(std::move(file)),
        temporary_prefix_(file_.filename().string() + ".tmp-"),
        every_(options.every),
        clock_(clock),
        labels_("run=\"" + prometheus_escaped(options.run.empty() ? file_.stem().string() : options.run) +
                "\",rank=\"" + std::to_string(options.rank) + '"') {}

  void begin(const BeginEvent& event) override {
    // Until the first step ends the file shows where the run resumed.
    step_.step = event.step;
    step_.loss = event.loss;
    remove_leftovers();
    write();
  }

  void step(const StepEvent& event) override {
    // The first event already holds samples of earlier attempts.
    if (!first_samples_) first_samples_ = event.samples;
    step_ = event;
    steps_ += 1;
    if (event.took > Duration::zero()) step_time_.observe(in_seconds(event.took));
    if (event.saved) saved(*event.saved);
    write_if_due();
  }

  void evaluation(const EvaluationEvent& event) override { evaluation_ = event; }
  void system(const SystemEvent& event) override { system_ = event; }

  void status(const StatusEvent& event) override {
    status_ = event;
    if (event.newest) saved(*event.newest);
    write_if_due();
  }

  // Even if none is due: the file keeps these values until the next attempt.
  void end(const EndEvent& /*event*/) override { write(); }

 private:
  void saved(const SavedEvent& save) {
    // One save comes twice, with a step and with a status, and must count once.
    if (save.step <= last_saved_) return;
    last_saved_ = save.step;
    commit_time_.observe(in_seconds(save.write + save.commit));
    stage_time_.observe(in_seconds(save.staging));
  }

  void write_if_due() {
    if (clock_.now() - written_ >= every_) write();
  }

  // Files of an attempt that was killed while it wrote.
  void remove_leftovers() {
    const auto folder = file_system_.open_directory(folder_of(file_), false);
    if (!folder) return;
    for (const DirectoryEntry& entry : folder->list()) {
      if (entry.name.starts_with(temporary_prefix_)) folder->unlink(entry.name);
    }
  }

  void write() {
    written_ = clock_.now();
    const auto folder = file_system_.open_directory(folder_of(file_), false);
    // Not created: the folder belongs to node_exporter, and nobody would read a folder of a wrong name.
    if (!folder)
      throw IoError("open", folder_of(file_), ENOENT, "create the folder, and start the run again");
    const std::string temporary = temporary_prefix_ + std::to_string(getpid());
    // An earlier process of this container may have had the same number.
    folder->unlink(temporary);
    const auto file = folder->open(temporary, OpenMode::create);
    if (file == nullptr) throw IoError("create", folder_of(file_) / temporary, EEXIST);
    try {
      const std::string content = text();
      const auto replaced = folder->status(file_.filename().string());
      // node_exporter runs as another user. Whoever has changed the file's access keeps that.
      replaced ? file->take_access_of(*replaced) : file->let_others_read();
      file->write_at(std::as_bytes(std::span(content)), 0);
      // NFS and quotas may report a failed write only here, and such a file must not replace the old one.
      file->close();
    } catch (...) {
      folder->unlink(temporary);  // a full disk has no space for it
      throw;
    }
    // A rename, so that a scrape never reads half a file. Without fsync: after a crash the values are old
    // anyway.
    folder->rename_over(temporary, file_.filename().string());
  }

  std::string text() const {
    PrometheusText out(labels_);
    out.gauges("holdfast_build_info", "Version of Holdfast; always 1.", "version",
               std::vector<LabeledValue>{{HOLDFAST_VERSION, 1}});
    put_training(out);
    if (status_) put_status(out, *status_);
    out.histogram("holdfast_checkpoint_commit_duration_seconds",
                  "Write and commit of one checkpoint, of this attempt.", commit_time_);
    out.histogram("holdfast_checkpoint_stage_duration_seconds",
                  "From the step boundary until the state was copied, of this attempt.", stage_time_);
    if (system_) put_system(out, *system_);
    return out.text();
  }

  void put_training(PrometheusText& out) const {
    out.counter("holdfast_train_steps_total", "Optimizer steps of this attempt.", steps_);
    out.counter("holdfast_train_samples_total", "Samples trained on by this attempt, without its first step.",
                static_cast<double>(first_samples_ ? step_.samples - *first_samples_ : 0));
    out.gauge("holdfast_train_step", "Number of the last step, counted from the start of the run.",
              static_cast<double>(step_.step));
    out.gauge("holdfast_train_loss", "Loss of the last step.", step_.loss);
    out.gauge("holdfast_train_learning_rate", "Learning rate of the last step.", step_.learning_rate);
    out.histogram("holdfast_train_step_duration_seconds", "Time of one step, of this attempt.", step_time_);
    if (evaluation_) {
      out.gauge("holdfast_evaluation_accuracy_ratio", "Accuracy of the last evaluation.",
                evaluation_->accuracy);
      out.gauge("holdfast_evaluation_loss", "Loss of the last evaluation.", evaluation_->loss);
    }
  }

  static void put_status(PrometheusText& out, const StatusEvent& status) {
    out.counter("holdfast_checkpoint_commits_total", "Checkpoints made durable by this attempt.",
                static_cast<double>(status.commits));
    out.counters("holdfast_checkpoint_failures_total", "Saves of this attempt that failed, by reason.",
                 "reason", values_of(status.failures));
    out.counter("holdfast_checkpoint_written_bytes_total", "Bytes of this attempt's durable checkpoints.",
                static_cast<double>(status.written_bytes));
    if (status.durable_step >= 0) {
      out.gauge("holdfast_checkpoint_last_commit_timestamp_seconds",
                "Unix time of the newest commit; right after a resume that of the resume.",
                in_seconds(status.durable_at));
      out.gauge("holdfast_checkpoint_last_commit_step", "Step of the newest durable checkpoint.",
                static_cast<double>(status.durable_step));
    }
    out.gauge("holdfast_work_at_risk_seconds", "Work that would be lost if the machine vanished now.",
              in_seconds(status.risk_time));
    out.counters("holdfast_interruption_notices_total", "Interruptions announced to this attempt, by source.",
                 "source", values_of(status.notices));
    if (status.deadline) {
      out.gauge("holdfast_interruption_deadline_timestamp_seconds",
                "Unix time of this machine's announced end.", in_seconds(*status.deadline));
    }
    out.gauge("holdfast_goodput_ratio", "Share of this attempt's life spent on steps that are not at risk.",
              status.goodput);
  }

  static void put_system(PrometheusText& out, const SystemEvent& system) {
    out.counter("holdfast_process_cpu_seconds_total", "CPU time of the process.",
                in_seconds(system.cpu_time));
    out.gauge("holdfast_process_resident_memory_bytes", "Memory of the process in RAM.",
              static_cast<double>(system.resident_bytes));
    out.counter("holdfast_process_read_bytes_total", "Bytes that the process read from devices.",
                static_cast<double>(system.read_bytes));
    out.counter("holdfast_process_written_bytes_total", "Bytes that the process wrote to devices.",
                static_cast<double>(system.written_bytes));
    std::vector<LabeledValue> used;
    std::vector<LabeledValue> total;
    std::vector<LabeledValue> utilization;
    for (const GpuFigures& gpu : system.gpus) {
      const std::string name = std::to_string(gpu.index);
      used.emplace_back(name, static_cast<double>(gpu.memory_used));
      total.emplace_back(name, static_cast<double>(gpu.memory_total));
      if (gpu.utilization) utilization.emplace_back(name, *gpu.utilization);
    }
    out.gauges("holdfast_gpu_memory_used_bytes", "Memory in use on a GPU of this machine.", "gpu", used);
    out.gauges("holdfast_gpu_memory_total_bytes", "Memory of a GPU of this machine.", "gpu", total);
    out.gauges("holdfast_gpu_utilization_ratio", "Share of the time in which a GPU of this machine computed.",
               "gpu", utilization);
  }

  FileSystem& file_system_;
  std::filesystem::path file_;
  std::string temporary_prefix_;
  Duration every_;
  const Clock& clock_;
  std::string labels_;
  SteadyTime written_{};

  StepEvent step_;
  double steps_ = 0;
  std::optional<std::int64_t> first_samples_;
  std::optional<EvaluationEvent> evaluation_;
  std::optional<SystemEvent> system_;
  std::optional<StatusEvent> status_;
  std::int64_t last_saved_ = -1;
  PrometheusHistogram step_time_{{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100}};
  PrometheusHistogram commit_time_{{0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300}};
  PrometheusHistogram stage_time_{{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30}};
};

}  // namespace

std::unique_ptr<MetricSink> prometheus_sink(FileSystem& file_system, std::filesystem::path file,
                                            const PrometheusOptions& options, const Clock& clock) {
  if (!file.has_filename()) throw IoError("open", file, EISDIR);
  const auto folder = file_system.open_directory(folder_of(file), false);
  const auto found = folder ? folder->status(file.filename().string()) : std::nullopt;
  if (found && found->kind != FileKind::regular) {
    throw IoError("open", file, found->kind == FileKind::directory ? EISDIR : EINVAL,
                  "metrics replace a regular file only: give another name");
  }
  std::string target = file.string();
  return std::make_unique<GuardedSink>(
      std::move(target), std::make_unique<PrometheusSink>(file_system, std::move(file), options, clock));
}

}}  // namespace holdfast::v0_2
