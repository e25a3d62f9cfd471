#include "holdfast/staging/internal/arena_pool.h"

#include <utility>
#include <vector>

#include "holdfast/base/mutex.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct ArenaPool::Core {
  explicit Core(int most) : limit(most) { free.reserve(static_cast<std::size_t>(limit)); }

  const int limit;
  Mutex mutex;
  CondVar returned;
  int held HOLDFAST_GUARDED_BY(mutex) = 0;
  std::shared_ptr<const FilePlan> plan HOLDFAST_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<Arena>> free
      HOLDFAST_GUARDED_BY(mutex);  // capacity `limit`, so that giving back allocates nothing

  void give_back(std::shared_ptr<Arena> arena, const FilePlan* made_for) noexcept {
    {
      const MutexLock lock(mutex);
      --held;
      const bool keep =
          made_for == plan.get() && std::cmp_less(free.size() + static_cast<unsigned>(held), limit);
      if (keep) free.push_back(std::move(arena));
    }
    returned.notify_all();  // an arena that was not kept is unmapped here, outside the lock
  }
};

ArenaPool::ArenaPool(int limit) : core_(std::make_shared<Core>(limit)) {}

void ArenaPool::use_plan(std::shared_ptr<const FilePlan> plan) {
  // Declared before the lock, so that the images are unmapped after it is released.
  std::vector<std::shared_ptr<Arena>> old;
  old.reserve(static_cast<std::size_t>(core_->limit));
  const MutexLock lock(core_->mutex);
  old.swap(core_->free);
  core_->plan = std::move(plan);
}

void ArenaPool::offer(std::shared_ptr<Arena> arena) {
  const MutexLock lock(core_->mutex);
  // Somebody who still reads the loaded state keeps its memory.
  if (!core_->plan || arena.use_count() != 1 || arena->size() != core_->plan->layout->length()) return;
  // One more image would exceed the memory of one state.
  if (core_->held != 0 || !core_->free.empty()) return;
  // An image that was read from a file holds that file's stretches between the tensors.
  put_stretches(*core_->plan, *arena);
  core_->free.push_back(std::move(arena));
}

bool ArenaPool::ready() const {
  const MutexLock lock(core_->mutex);
  return core_->held < core_->limit;
}

bool ArenaPool::wait_ready(std::chrono::nanoseconds wait) const {
  const MutexLock lock(core_->mutex);
  return core_->returned.wait_for(
      core_->mutex, wait, [&]() HOLDFAST_REQUIRES(core_->mutex) { return core_->held < core_->limit; });
}

std::shared_ptr<Arena> ArenaPool::take() {
  std::shared_ptr<Arena> arena;
  std::shared_ptr<const FilePlan> plan;
  {
    const MutexLock lock(core_->mutex);
    plan = core_->plan;
    if (!core_->free.empty()) {
      arena = std::move(core_->free.back());
      core_->free.pop_back();
    }
    // Counted before it is made, so that the limit holds meanwhile.
    ++core_->held;
  }
  try {
    if (!arena) arena = make_(*plan);
    if (prepare_ && !arena->attached()) arena->attach(prepare_(arena->bytes()));
  } catch (...) {
    const MutexLock lock(core_->mutex);
    --core_->held;
    throw;
  }
  // The image knows its plan, because one made for an older plan is not used again.
  Arena* const raw = arena.get();
  return {raw,
          [core = core_, plan, arena](Arena*) mutable { core->give_back(std::move(arena), plan.get()); }};
}

}}}  // namespace holdfast::v0_2::internal
