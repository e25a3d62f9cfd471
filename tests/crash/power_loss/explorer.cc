#include "explorer.h"

#include <bit>
#include <chrono>
#include <cstdio>
#include <thread>

#include "distinct_set.h"
#include "judge.h"
#include "support/ledger_lines.h"

namespace holdfast::test::power_loss {
namespace {

constexpr std::size_t kExhaustive = 10;  // open operations
constexpr int kRandomCuts = 40;          // where there are more
constexpr std::uint64_t kSpare = 8192;   // slots; a promise often changes where the disk does not
constexpr std::uint64_t kSecondCutIn = 8;
constexpr std::uint64_t kThoroughIn = 4;

struct Shared {
  explicit Shared(const Request& request)
      : disks(request.states * 5 / 4 + kSpare), judged(request.states * 3 / 2 + kSpare) {}

  DistinctSet disks;
  DistinctSet judged;  // disk and promise
  std::atomic<std::uint64_t> next_seed{0};
  std::atomic<std::uint64_t> states{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  Result result;  // all but `states`
};

std::uint64_t key_of(const Promise& promise) {
  std::uint64_t key = mix(promise.claimed) ^
                      mix(promise.state_attempt * 7919 + static_cast<std::uint64_t>(promise.state_step + 1));
  if (promise.acknowledged) {
    key ^= mix(promise.acknowledged->attempt * 104'729 +
               static_cast<std::uint64_t>(promise.acknowledged->step) + 17);
  }
  return key;
}

std::uint64_t random_subset(Random& random, std::size_t count) {
  std::uint64_t bits = random.next();
  // Not always half of them.
  if (const std::uint64_t lean = random.below(3); lean == 1) {
    bits |= random.next();
  } else if (lean == 2) {
    bits &= random.next();
  }
  return count == 64 ? bits : bits & ((std::uint64_t{1} << count) - 1);
}

// Oldest first.
std::vector<FileId> good_files(const SimFileSystem& files, const Promise& promise) {
  std::vector<FileId> good;
  for (const auto& [id, written] : promise.written) {
    const auto node = files.find(kRun / checkpoint_name(id));
    if (node && files.disk().content_hash(*node) == written.content) good.push_back(id);
  }
  return good;
}

class Explorer {
 public:
  Explorer(const Request& request, Shared& shared)
      : request_(request), shared_(shared), maker_(request.files()), judges_maker_(request.files()) {}

  void run();

 private:
  using Text = SimFileSystem::Text;
  struct Fork {
    SimDisk disk;
    Promise promise;
  };

  void history(std::uint64_t seed);
  Fork fork(const SimDisk& disk, const Promise& promise, Random& random) const;
  void cut_everywhere(Point point, const SimDisk& disk, const Promise& promise, const Text& text);
  void cut(const Point& point, const SimDisk& disk, const Promise& promise, const Text& text);
  void go_on(SimFileSystem& files, Session& session, Promise& promise, const Point& point, const Text& first,
             Random random);
  void report(Broken::Kind kind, const Point& point, const std::string& when, const std::string& why);
  bool done() const { return shared_.stop || (!request_.replay && shared_.states >= request_.states); }

  const Request& request_;
  Shared& shared_;
  const std::unique_ptr<FileMaker> maker_;
  // A cut comes in the middle of a write.
  const std::unique_ptr<FileMaker> judges_maker_;
  Result own_;
};

void Explorer::run() {
  if (request_.replay) {
    if (shared_.next_seed++ == 0) history(request_.replay->seed);
  } else {
    while (!done()) {
      history(request_.first_seed + shared_.next_seed++);
      ++own_.histories;
    }
  }
  const std::lock_guard lock(shared_.mutex);
  shared_.result.judged += own_.judged;
  shared_.result.second += own_.second;
  shared_.result.points += own_.points;
  shared_.result.histories += own_.histories;
}

void Explorer::history(std::uint64_t seed) {
  Random random(seed);
  Fork next{SimFileSystem().disk(), {}};
  const std::uint64_t lives = 1 + random.below(4);
  for (std::uint64_t life = 0; life < lives && !done(); ++life) {
    SimFileSystem files(std::move(next.disk));
    Promise promise = std::move(next.promise);
    StoreOptions options;
    options.keep = KeepLast{static_cast<int>(2 + random.below(2))};
    options.read_back = random.chance(1, 2) ? ReadBack::all : ReadBack::head;
    // A branch from an older step, as with --resume-from.
    const std::vector<FileId> good = good_files(files, promise);
    if (!good.empty() && random.chance(1, 6)) options.start.step = good[random.below(good.size())].step;
    const std::uint64_t end = random.below(90);
    std::optional<Fork> at_the_end;
    Random ending(random.next());
    Point point{.seed = seed, .life = life};
    files.set_hook([&](const Text& text) {
      if (!done()) cut_everywhere(point, files.disk(), promise, text);
      if (point.operation++ == end) at_the_end = fork(files.disk(), promise, ending);
    });
    try {
      Session session(files, promise, *maker_, std::move(options));
      session.live(random);
    } catch (const std::exception& error) {
      report(Broken::Kind::stuck, point, "this (the history itself failed)\n", error.what());
      return;
    }
    next = at_the_end ? std::move(*at_the_end) : fork(files.disk(), promise, ending);
  }
}

// How a life ends: killed, with all that it wrote still in the page cache; or with the power.
Explorer::Fork Explorer::fork(const SimDisk& disk, const Promise& promise, Random& random) const {
  if (random.chance(1, 3)) return {disk, promise};
  PowerCut cut{.kept = random_subset(random, disk.cut_operations())};
  if (random.chance(1, 3)) cut.torn = cut.kept & disk.cut_writes() & random.next();
  cut.tear_seed = random.next();
  Fork next{disk.after_power_cut(cut), promise};
  if (!promise.acknowledged || !promise.rotten.empty() || !random.chance(1, 3)) return next;
  // Rot in the newest file, where another good one is left to go on from.
  SimFileSystem files(next.disk);
  std::vector<FileId> good = good_files(files, promise);
  if (good.size() < 2) return next;
  const FileId newest = good.back();
  good.pop_back();
  files.disk().flip_bit(*files.find(kRun / checkpoint_name(newest)), 4096 + random.below(4096));
  next.disk = files.disk();
  next.promise.rotten.insert(newest);
  next.promise.acknowledged = good.back();
  next.promise.finite.reset();
  for (const FileId id : good) {
    if (promise.written.at(id).finite) next.promise.finite = id;
  }
  return next;
}

void Explorer::cut_everywhere(Point point, const SimDisk& disk, const Promise& promise, const Text& text) {
  if (request_.replay) {
    if (point.life != request_.replay->life || point.operation != request_.replay->operation) return;
    cut(*request_.replay, disk, promise, text);
    return;
  }
  ++own_.points;
  const std::size_t count = disk.cut_operations();
  const std::uint64_t writes = disk.cut_writes();
  Random random(mix(point.seed) ^ mix(point.life * 1000 + point.operation));
  const auto both = [&](std::uint64_t kept) {
    point.kept = kept;
    point.torn = 0;
    cut(point, disk, promise, text);
    if ((kept & writes) == 0) return;
    point.torn = kept & writes & random.next();
    if (point.torn == 0) point.torn = kept & writes;
    point.tear_seed = random.next() & 0xffff;
    cut(point, disk, promise, text);
  };
  if (count <= kExhaustive) {
    for (std::uint64_t kept = 0; kept < std::uint64_t{1} << count; ++kept) both(kept);
    return;
  }
  const std::uint64_t all = count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
  both(0);
  both(all);
  for (std::size_t i = 0; i < count; ++i) {
    both(all & ~(std::uint64_t{1} << i));
    both(std::uint64_t{1} << i);
  }
  for (int i = 0; i < kRandomCuts; ++i) both(random_subset(random, count));
}

void Explorer::cut(const Point& point, const SimDisk& disk, const Promise& promise, const Text& text) {
  if (shared_.stop) return;
  SimDisk left = disk.after_power_cut({.kept = point.kept, .torn = point.torn, .tear_seed = point.tear_seed});
  const std::uint64_t hash = left.hash();
  if (!shared_.judged.insert(hash ^ key_of(promise)) && !request_.replay) return;
  if (shared_.disks.insert(hash)) ++shared_.states;
  ++own_.judged;

  Random random(mix(hash) ^ point.seed);
  const bool thorough = random.chance(1, kThoroughIn) || request_.replay;
  const bool second = random.chance(1, kSecondCutIn);
  SimFileSystem files(std::move(left));
  Promise after = promise;
  Session session(files, after, *judges_maker_);
  const auto broken = judge(files, session, promise, *judges_maker_, thorough);
  const Text first = [&] {
    return text() + "\n" + disk.describe_cut({point.kept, point.torn, point.tear_seed});
  };
  if (broken) {
    report(broken->kind, point, first(), broken->why);
  } else if (second) {
    go_on(files, session, after, point, first, random);
  }
}

// The run goes on for a round, and the power is cut again somewhere in it.
void Explorer::go_on(SimFileSystem& files, Session& session, Promise& promise, const Point& point,
                     const Text& first, Random random) {
  std::uint64_t left = random.below(24);
  std::optional<Fork> cut;
  std::string when;
  files.set_hook([&](const Text& operation) {
    if (cut || left-- > 0) return;
    PowerCut second{.kept = random_subset(random, files.disk().cut_operations())};
    second.torn = random.chance(1, 2) ? second.kept & files.disk().cut_writes() & random.next() : 0;
    second.tear_seed = random.next();
    cut = Fork{files.disk().after_power_cut(second), promise};
    when = first() + "second cut after " + operation() + "\n" + files.disk().describe_cut(second);
  });
  try {
    session.save(true);
    session.write_state(RunPhase::running);
    session.append_ledger();
    session.tidy();
    const auto lines = ledger_lines(files, kRun, session.attempt());
    if (lines.empty() || lines.back() != R"({"step":)" + std::to_string(session.step()) + "}") {
      report(Broken::Kind::lost, point, first(), "a line of the ledger that was written after the cut");
    }
  } catch (const std::exception& error) {
    report(Broken::Kind::stuck, point, first() + "the save after it\n", error.what());
    return;
  }
  if (!cut) return;
  ++own_.judged;
  ++own_.second;
  if (shared_.disks.insert(cut->disk.hash())) ++shared_.states;
  SimFileSystem again(std::move(cut->disk));
  Promise after = cut->promise;
  Session last(again, after, *judges_maker_);
  if (const auto broken = judge(again, last, cut->promise, *judges_maker_, true))
    report(broken->kind, point, when, broken->why);
}

void Explorer::report(Broken::Kind kind, const Point& point, const std::string& when,
                      const std::string& why) {
  const std::lock_guard lock(shared_.mutex);
  Result& result = shared_.result;
  std::string what = "SILENT";
  switch (kind) {
    case Broken::Kind::lost:
      ++result.lost;
      what = "LOST";
      break;
    case Broken::Kind::stuck:
      ++result.stuck;
      what = "STUCK";
      break;
    case Broken::Kind::silent:
      ++result.silent;
      break;
  }
  if (result.failures.size() < static_cast<std::size_t>(request_.stop_after)) {
    result.failures.push_back({what + ": " + why + "\nseed " + std::to_string(point.seed) + ", life " +
                                   std::to_string(point.life) + ", operation " +
                                   std::to_string(point.operation) + ": power cut after " + when,
                               point});
  }
  if (result.failures.size() >= static_cast<std::size_t>(request_.stop_after)) shared_.stop = true;
}

}  // namespace

std::string to_text(const Point& point) {
  char text[128];
  std::snprintf(text, sizeof text, "%llx:%llx:%llx:%llx:%llx:%llx",
                static_cast<unsigned long long>(point.seed), static_cast<unsigned long long>(point.life),
                static_cast<unsigned long long>(point.operation), static_cast<unsigned long long>(point.kept),
                static_cast<unsigned long long>(point.torn),
                static_cast<unsigned long long>(point.tear_seed));
  return text;
}

std::optional<Point> point_from_text(const std::string& text) {
  unsigned long long numbers[6];
  if (std::sscanf(text.c_str(), "%llx:%llx:%llx:%llx:%llx:%llx", &numbers[0], &numbers[1], &numbers[2],
                  &numbers[3], &numbers[4], &numbers[5]) != 6) {
    return std::nullopt;
  }
  return Point{.seed = numbers[0],
               .life = numbers[1],
               .operation = numbers[2],
               .kept = numbers[3],
               .torn = numbers[4],
               .tear_seed = numbers[5]};
}

std::string Result::summary() const {
  char text[200];
  std::snprintf(text, sizeof text,
                "power loss: %llu distinct states in %.1f s, %llu lost, %llu stuck, %llu silent",
                static_cast<unsigned long long>(states), seconds, static_cast<unsigned long long>(lost),
                static_cast<unsigned long long>(stuck), static_cast<unsigned long long>(silent));
  return text;
}

Result explore(const Request& request) {
  const auto start = std::chrono::steady_clock::now();
  Shared shared(request);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(request.threads));
  for (int i = 0; i < request.threads; ++i) threads.emplace_back([&] { Explorer(request, shared).run(); });
  for (std::thread& thread : threads) thread.join();
  Result result = std::move(shared.result);
  result.states = shared.states;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace holdfast::test::power_loss
