#include "life.h"

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/writing/file_verifier.h"
#include "support/memory_file_system.h"

namespace holdfast::test::memory {

CheckpointerOptions Life::options() const {
  CheckpointerOptions options;
  options.directory = directory_;
  options.every = every;
  options.keep = KeepLast{2};
  options.writing.threads = 2;
  options.writing.second_image = second_image;
  options.notices.hear_signals = false;
  options.start.seams.file_system = file_system;
  return options;
}

void Life::start() {
  checkpointer.reset();
  source = std::make_unique<MemorySource>();
  checkpointer = std::make_unique<Checkpointer>(*source, options());
  checkpointer->resume();
}

void Life::train(std::int64_t steps) {
  for (std::int64_t i = 0; i < steps; ++i) checkpointer->after_step(source->train());
}

void Life::save(Point& point) {
  const SaveHandle handle = checkpointer->save();
  if (handle.wait() != SaveStatus::durable)
    return point.complain("saving does not work again: " + handle.error());
  acknowledge(source->step());
}

void Life::judge(Point& point) const {
  try {
    FileVerifier verifier(1);
    CheckpointStore store(FileSystem::real(), Clock::real(), {.directory = directory_, .keep = KeepLast{2}},
                          verifier);
    const auto newest = store.preflight().newest;
    const std::int64_t step = newest ? newest->step : -1;
    if (step < acknowledged) {
      return point.complain("step " + std::to_string(acknowledged) + " was acknowledged, step " +
                                std::to_string(step) + " is there",
                            true);
    }
    if (!newest) return;
    const auto loaded = verifier.load(*store.open(*newest));
    const auto* const found = std::get_if<FileVerifier::Loaded>(&loaded);
    if (found == nullptr ||
        !(state_digest(*found->snapshot) == straight_.at(static_cast<std::size_t>(step)))) {
      point.complain(newest->name + " holds another state", true);
    }
  } catch (const std::exception& error) {
    point.complain(std::string("nothing to start from: ") + error.what(), true);
  }
}

std::vector<Digest> straight_run(std::int64_t steps) {
  MemoryFileSystem disk;
  disk.mount("/vol");
  CheckpointerOptions options;
  options.directory = "/vol/run";
  options.every = {};
  options.notices.hear_signals = false;
  options.start.seams.file_system = &disk;
  MemorySource source;
  Checkpointer checkpointer(source, options);
  checkpointer.resume();
  std::vector<Digest> digests(1);
  while (source.step() < steps) {
    checkpointer.after_step(source.train());
    digests.push_back(checkpointer.state_digest());
  }
  return digests;
}

}  // namespace holdfast::test::memory
