// Several ranks of one run as threads that see each other in memory, each with a Checkpointer.
//
// Threads: Together by one, which starts and joins those of the ranks.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "announcer.h"
#include "rig.h"
#include "support/memory_world.h"

namespace holdfast::test {

// One process of several. Rank 0 has the volume; another has its own view of it, or none at all.
struct Member {
  Member(Volume& volume, RankChannel& channel, CheckpointerOptions given, MemorySource::Options state,
         bool sees)
      : rank(channel.rank()),
        view(volume.disk),
        clock(rank == 0 ? volume.clock : own_clock),
        source(state),
        options(std::move(given)) {
    options.ranks.channel = &channel;
    options.start.seams.clock = &clock;
    if (rank != 0) options.start.seams.file_system = sees ? static_cast<FileSystem*>(&view) : &nothing;
    announcer.give_to(options);
    checkpointer = std::make_unique<Checkpointer>(source, options);
  }
  // Rank 0 waits for its disk, unless that is what the test is about; the others learn of it at their next
  // step, so their wait does not last.
  Decision step() {
    clock.advance(step_time);
    const StepReport report = source.train();
    decision = checkpointer->after_step(report);
    if (!decision.saved) return decision;
    saved.push_back(source.step());
    if (patient) {
      // The others' threads may wait for what their training thread tells at the next step.
      rank == 0 ? static_cast<void>(decision.save.wait()) : wait_for_share();
    }
    return decision;
  }
  // Where it has one.
  void wait_for_share() {
    if (decision.save.figures().staged == 0) return;
    for (int i = 0; i < 2000 && decision.save.status() == SaveStatus::staged; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void train_to(std::int64_t last) {
    while (source.step() < last && !decision.stop) step();
  }
  int finish() { return code = checkpointer->finish(); }
  std::string state() { return to_hex(checkpointer->state_digest()); }

  const int rank;
  MemoryFileSystem nothing;
  FaultFileSystem view;
  FakeClock own_clock;
  FakeClock& clock;
  MemorySource source;
  Announcer announcer;
  CheckpointerOptions options;
  std::unique_ptr<Checkpointer> checkpointer;
  Resumed resumed;
  Decision decision;
  std::vector<std::int64_t> saved;
  Duration step_time = std::chrono::seconds(2);
  bool patient = true;
  int code = -1;
  std::string error;  // what ended it, with its exit code
};

// One life of a run of several ranks, each on a thread of its own.
class Together : public testing::Test {
 protected:
  using Script = std::function<void(Member&)>;

  void live(int ranks, const Script& script) {
    members.clear();
    world = std::make_unique<MemoryWorld>(ranks);
    world->corrupt_for = corrupt_for;
    world->timeout = timeout;
    for (int rank = 1; rank < ranks; ++rank) {
      const auto given = machines.find(rank);
      if (given != machines.end()) world->machines[rank] = given->second;
      if (given == machines.end() && !one_machine) world->machines[rank] = "machine-" + std::to_string(rank);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      MemorySource::Options state;
      state.rank = rank;
      if (rank == odd_one) state.learning_rate = 0.2;
      if (rank == other_threads) state.threads = 7;
      if (rank == more_streams) state.streams = 2;
      CheckpointerOptions own = options;
      if (rank == blind_one) own.notices.require_sources = {"ec2"};
      state.elements = elements;
      state.uneven_buffers = uneven_buffers;
      state.spread = spread;
      members.push_back(std::make_unique<Member>(*volume, world->rank(rank), own, state, rank < seers));
    }
    std::vector<std::thread> threads;
    for (const auto& member : members) {
      threads.emplace_back([&, one = member.get()] {
        try {
          one->patient = patient;
          one->step_time = step_time;
          if (before) before(*one);
          one->resumed = one->checkpointer->resume();
          script(*one);
        } catch (const Error& error) {
          one->error = std::to_string(static_cast<int>(error.exit_code())) + " " + error.what();
          one->checkpointer.reset();  // a process that ends
          world->lose(one->rank);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  template <class T>
  std::vector<T> of_all(const std::function<T(Member&)>& ask) {
    std::vector<T> answers;
    for (const auto& member : members) answers.push_back(ask(*member));
    return answers;
  }
  std::vector<int> codes() {
    return of_all<int>([](Member& one) { return one.code; });
  }
  std::vector<std::int64_t> steps() {
    return of_all<std::int64_t>([](Member& one) { return one.source.step(); });
  }
  std::vector<std::string> errors() {
    return of_all<std::string>([](Member& one) { return one.error; });
  }
  std::vector<std::vector<std::uint64_t>> own() {
    return of_all<std::vector<std::uint64_t>>([](Member& one) { return one.source.own(); });
  }
  // Of every rank, as a life without interruption has it.
  std::vector<std::string> states() {
    return of_all<std::string>([](Member& one) { return one.state(); });
  }
  Member& member(int rank) { return *members[static_cast<std::size_t>(rank)]; }
  // No rank threw, and all ended with that exit code.
  void expect_all_ended(int code, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    const testing::ScopedTrace trace(file, line, "the ranks' ends");
    EXPECT_THAT(errors(), testing::Each(std::string()));
    EXPECT_THAT(codes(), testing::Each(code));
  }

  // Another volume, empty.
  void start_over() {
    members.clear();
    const auto every = options.every;
    volume = std::make_unique<Volume>();
    options = volume->options(every);
  }

  std::unique_ptr<Volume> volume = std::make_unique<Volume>();
  CheckpointerOptions options = volume->options();
  Script before;  // resume()
  bool patient = true;
  Duration step_time = std::chrono::seconds(2);  // longer than the time between votes: each step votes
  int corrupt_for = -1;
  Duration timeout = std::chrono::seconds(60);
  int odd_one = -1;
  int blind_one = -1;
  int other_threads = -1;
  int more_streams = -1;
  int seers = 1;                        // so many ranks see the volume
  bool one_machine = false;             // otherwise each rank has one of its own …
  std::map<int, std::string> machines;  // … unless it is named here
  std::size_t elements = 1000;
  bool uneven_buffers = false;
  bool spread = false;
  std::unique_ptr<MemoryWorld> world;
  std::vector<std::unique_ptr<Member>> members;
};

}  // namespace holdfast::test
