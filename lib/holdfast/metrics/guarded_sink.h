// Puts a sink that may throw behind the contract of MetricSink: the first exception is logged, and the sink
// gets no further event.
//
// Errors: none. Threads: those of the sink.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/metrics/sink.h"

namespace holdfast { inline namespace v0_2 {

class GuardedSink final : public MetricSink {
 public:
  // `target` is named in the warning.
  GuardedSink(std::string target, std::unique_ptr<MetricSink> sink)
      : target_(std::move(target)), sink_(std::move(sink)) {}

  void begin(const BeginEvent& event) override { pass(&MetricSink::begin, event); }
  void step(const StepEvent& event) override { pass(&MetricSink::step, event); }
  void evaluation(const EvaluationEvent& event) override { pass(&MetricSink::evaluation, event); }
  void histogram(const HistogramEvent& event) override { pass(&MetricSink::histogram, event); }
  void system(const SystemEvent& event) override { pass(&MetricSink::system, event); }
  void status(const StatusEvent& event) override { pass(&MetricSink::status, event); }
  void finish() override { pass(&MetricSink::finish); }
  void end(const EndEvent& event) override { pass(&MetricSink::end, event); }
  void flush() override { pass(&MetricSink::flush); }
  std::function<void()> row_sync() override { return sink_ ? sink_->row_sync() : nullptr; }

 private:
  template <class Method, class... Events>
  void pass(Method method, const Events&... event) {
    if (!sink_) return;
    try {
      ((*sink_).*method)(event...);
    } catch (const std::exception& error) {
      log_warning("no more metrics are written to {} (training goes on): {}", target_, what_of(error));
      sink_.reset();
    }
  }

  std::string target_;
  std::unique_ptr<MetricSink> sink_;  // null after a failure
};

}}  // namespace holdfast::v0_2
