// For the thread sanitizer: the writer with several threads and a real file system under it, while operations
// of every kind fail and the training thread submits, asks and looks.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "holdfast/io/posix_file_system.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/writing/async_writer.h"
#include "holdfast/writing/file_verifier.h"
#include "support/captured_log.h"
#include "support/fault_file_system.h"
#include "support/gate.h"
#include "support/memory_source.h"
#include "support/run_disk.h"
#include "support/soon.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

class WriterRaced : public testing::TestWithParam<bool> {
 public:
  WriterRaced() {
    std::string name = testing::TempDir() + "/holdfast-writer-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  ~WriterRaced() override { std::filesystem::remove_all(folder); }

  WriteRequest request(std::int64_t step, AttemptNumber attempt) {
    auto snapshot = std::make_shared<Snapshot>();
    snapshot->layout = plan->layout;
    snapshot->arena = make_image(*plan);
    const auto bytes = plan->layout->slot(0, snapshot->arena->bytes());
    std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(step));
    snapshot->step = step;
    RunRecord record;
    record.attempt = attempt;
    put_run_record(snapshot->attributes, record);
    return {snapshot, plan, record.ancestry};
  }

  std::filesystem::path folder;
  std::shared_ptr<const FilePlan> plan = make_file_plan({{"model/w", DType::float32, {3 << 20}}}, 4096);
};

TEST_P(WriterRaced, SavesFailAndGoOn) {
  CapturedLog log;
  PosixFileSystem files({.direct = GetParam()});
  FaultFileSystem faults(files);
  FileVerifier verifier{1};
  LossRing losses;
  Clock& clock = Clock::real();
  CheckpointStore store(faults, clock, {.directory = folder / "run", .keep = KeepLast{2}}, verifier);
  store.preflight();
  const AttemptNumber attempt = store.claim();
  store.recover();
  AsyncWriter writer(store, clock, losses, RunState{.attempt = attempt},
                     {.threads = 3, .write_limit = 100, .ledger_interval = 5ms, .claim_interval = 0s});
  std::atomic<bool> done{false};
  std::thread observer([&] {
    while (!done) {
      writer.failing();
      writer.failure();
      writer.last_acknowledged();
      writer.wait_idle(50us);
    }
  });
  const std::pair<Op, int> series[] = {{Op::write, EIO},    {Op::reserve, ENOSPC}, {Op::sync_file, EIO},
                                       {Op::write, ENOSPC}, {Op::unlink, EACCES},  {Op::close, EIO}};
  int failed = 0;
  std::int64_t step = 0;
  for (const auto& [kind, code] : series) {
    while (!writer.wait_idle(1s)) continue;  // or it would hit the run state of the save before
    faults.fail(kind, kind == Op::write ? 2 : 1, code);
    std::vector<SaveHandle> handles;
    for (int i = 0; i < 3; ++i) {
      losses.push(++step, 0.5);
      handles.push_back(writer.submit(request(step, attempt)));
      if (i == 0) handles.back().wait();
    }
    for (const SaveHandle& handle : handles) failed += handle.wait() == SaveStatus::failed;
    faults.clear_faults();
  }
  const SaveHandle last = writer.submit(request(++step, attempt));
  writer.lift_limit();
  last.wait();
  done = true;
  observer.join();
  ASSERT_EQ(last.status(), SaveStatus::durable) << last.error();
  writer.stop();
  EXPECT_GE(failed, 2);  // where blocks are being freed, a full disk is asked again
  const auto file = files.open_file(folder / "run" / last.checkpoint(), OpenMode::read);
  EXPECT_EQ(verifier.inspect(*file, Verifier::Depth::full, true).kind, Verdict::Kind::good);
}

INSTANTIATE_TEST_SUITE_P(Kernel, WriterRaced, testing::Bool(), [](const auto& info) {
  return info.param ? std::string("Direct") : std::string("Buffered");
});

}}  // namespace holdfast::test
