#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/cli/child/attended_child.h"
#include "holdfast/cli/child/front_process.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/output/progress.h"
#include "holdfast/cli/rehearsal/metadata_server.h"
#include "holdfast/cli/run/run_watch.h"
#include "holdfast/cli/trial/rehearsal_report.h"
#include "holdfast/ledger/ledger_reader.h"
#include "holdfast/ledger/loss_search.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLook = 20ms;
constexpr Duration kBetweenReminders = 30s;  // between two lines about something that does not happen
constexpr Duration kUnkillable = 60s;

struct RehearseRequest {
  std::vector<std::string> command;
  std::string in = "30s";
  std::string notice;
  bool kill = false;
  int repeat = 1;
  std::string provider = "ec2";
  std::filesystem::path directory;
};

class Rehearsal {
 public:
  explicit Rehearsal(const RehearseRequest& options)
      : options_(options),
        in_(duration_of("--in", options.in)),
        // EC2 announces two minutes ahead, the others half a minute.
        notice_(duration_of("--notice", !options.notice.empty()     ? options.notice
                                        : options.provider == "ec2" ? "2min"
                                                                    : "30s")),
        grace_(time_to_leave()),
        environment_(server_.environment(options.provider)),
        watch_(options.directory) {
    // Only the simulated service: what the real machine announces stays out.
    environment_["HOLDFAST_SOURCES"] = "signal,file,deadline," + options.provider;
  }

  int run() {
    bool goes_on = true;
    for (int i = 0; i < options_.repeat && goes_on; ++i) {
      log_info("life {} of {}: a notice of {} comes {} after it has begun to train, {} at the deadline",
               i + 1, options_.repeat + 1, format_duration(notice_), format_duration(in_),
               options_.kill ? "SIGKILL" : "SIGTERM");
      lives_.emplace_back();
      live(lives_.back(), true);
      // A life that ended before its notice would end so again: its program is complete, or cannot train.
      goes_on = cancelled_ == 0 && lives_.back().given;
    }
    if (goes_on) {
      log_info("the last life: resumes, and is asked to stop {} later", format_duration(in_));
      live(last_, false);
    }
    if (cancelled_ != 0) {
      log_warning("the rehearsal was cancelled; the run can be resumed as usual");
      return 128 + cancelled_;
    }
    return report();
  }

 private:
  struct Times {
    SteadyTime said{};  // time of the last such line
    std::optional<SteadyTime> trains;
    std::optional<SteadyTime> announced;
    std::optional<WallTime> announced_wall;
    std::optional<SteadyTime> asked_to_leave;
    std::optional<SteadyTime> killed;
  };

  // Runs one life of the command. Without a notice it is asked to stop by SIGTERM.
  void live(RehearsedLife& life, bool gets_notice) {
    // The machine of a new life has no notice yet.
    server_.withdraw();
    watch_.expect_new_attempt();
    const std::int64_t requests = server_.requests();
    AttendedChild child(options_.command, environment_, inbox_);
    Times times;
    times.said = Clock::real().now();
    while (!child.ended()) {
      pass_on(child, times);
      watch_.poll(child.id());
      const SteadyTime now = Clock::real().now();
      if (!times.trains && watch_.first_state()) begins(times, now);
      if (!times.trains) wonder(times, now);
      // Counted from the start of training: how long a start takes depends on machine and checkpoint.
      const bool due = cancelled_ == 0 && times.trains && now >= *times.trains + in_;
      if (due && !gets_notice && !times.asked_to_leave) ask_to_leave(child, times, now);
      if (due && gets_notice && !times.announced) announce(times, now);
      if (times.announced && now >= *times.announced + notice_) end_machine(child, times, now);
      if (times.asked_to_leave && now >= *times.asked_to_leave + grace_) kill_all(child, times, now);
    }
    const SteadyTime ended = Clock::real().now();
    // The last state may have come after the last look.
    watch_.poll(child.id());
    // As on a machine that is gone: nothing of this life may reach into the next.
    if (times.killed) child.end_all();
    note(life, child, times, ended, server_.requests() - requests);
  }

  void pass_on(AttendedChild& child, Times& times) {
    // This wait is also the pace of the looks at the run directory: the report's times are late by up to
    // kLook.
    const auto signal = inbox_.wait(kLook);
    if (!signal) return;
    child.send(*signal);
    if (*signal != SIGTERM && *signal != SIGINT) return;
    cancelled_ = *signal;
    if (!times.asked_to_leave) times.asked_to_leave = Clock::real().now();
  }

  void begins(Times& times, SteadyTime now) const {
    times.trains = now;
    log_info("attempt {} trains from step {}", watch_.first_state()->attempt, watch_.first_state()->step);
  }

  void wonder(Times& times, SteadyTime now) const {
    if (now < times.said + kBetweenReminders) return;
    times.said = now;
    if (watch_.directory().empty()) {
      log_warning("no run directory among the folders that the command holds open; --directory names it");
    } else {
      log_warning("no attempt has begun to train in {} yet", shown(watch_.directory()));
    }
  }

  RehearsedLife* before(const RehearsedLife& life) {
    if (&life == &last_) return lives_.empty() ? nullptr : &lives_.back();
    return lives_.size() < 2 ? nullptr : &lives_[lives_.size() - 2];
  }

  void announce(Times& times, SteadyTime now) {
    // Rounded down to milliseconds, as times in ledgers are.
    times.announced_wall = std::chrono::floor<std::chrono::milliseconds>(Clock::real().wall_now());
    server_.announce({.in = notice_});
    times.announced = now;
    log_info("notice: this machine goes away in {}", format_duration(notice_));
  }

  static void ask_to_leave(AttendedChild& child, Times& times, SteadyTime now) {
    times.asked_to_leave = now;
    child.send_to_all(SIGTERM);
  }

  void end_machine(AttendedChild& child, Times& times, SteadyTime now) const {
    if (!times.asked_to_leave && !times.killed) {
      log_info("the deadline: {}", options_.kill ? "SIGKILL to all" : "SIGTERM to all");
    }
    if (options_.kill) {
      kill_all(child, times, now);
    } else if (!times.asked_to_leave) {
      ask_to_leave(child, times, now);
    }
  }

  static void kill_all(AttendedChild& child, Times& times, SteadyTime now) {
    if (!times.killed) times.killed = now;
    child.send_to_all(SIGKILL);
    if (now < *times.killed + kUnkillable) return;
    // Otherwise its destructor would try for ten seconds more to end the same process.
    child.leave_alone();
    throw Error("process " + std::to_string(child.id()) +
                " does not end at SIGKILL: it hangs in the kernel, " +
                "perhaps on a volume that does not answer; this proves nothing");
  }

  void note(RehearsedLife& life, const AttendedChild& child, const Times& times, SteadyTime ended,
            std::int64_t requests) {
    life.ending = child.ending();
    life.notice = notice_;
    life.asked = requests > 0;
    log_info("the life has ended: {}", to_text(life.ending));
    if (!watch_.first_state()) return;
    life.attempt = watch_.first_state()->attempt;
    life.durable_step = watch_.state()->durable_step;
    const LedgerLife story = story_of(life.attempt);
    // The first commit may have come before the first look.
    life.began_at = story.started ? story.start_step : watch_.first_state()->step;
    life.waited = story.paused();
    const LossesByStep losses = losses_of(life.attempt, life.began_at);
    life.furthest_step = std::max(story.last_step, watch_.state()->step);
    if (!losses.empty()) life.furthest_step = std::max(life.furthest_step, losses.rbegin()->first);
    if (RehearsedLife* const previous = before(life); previous != nullptr) {
      // What a life has lost shows only where the next one begins.
      previous->resumed_at = life.began_at;
      const Recomputed again = compare_losses(losses_of(previous->attempt, life.began_at), losses);
      previous->computed_again = again.steps;
      previous->different = again.different;
    }
    if (!times.announced) return;
    life.given = true;
    for (const auto& acknowledged : watch_.acknowledged()) {
      if (acknowledged.when < *times.announced) continue;
      life.commits.push_back({.after = acknowledged.when - *times.announced, .step = acknowledged.step});
    }
    for (const LedgerNotice& notice : story.notices) {
      if (notice.kind != "deadline" || notice.source != options_.provider) continue;
      if (notice.when < *times.announced_wall) continue;  // not from this rehearsal
      life.seen = std::max<Duration>(notice.when - *times.announced_wall, 0ns);
      life.seen_by = notice.source;
      break;
    }
    life.had_to_be_killed = !options_.kill && times.killed;
    if (!times.killed && !times.asked_to_leave) life.left = ended - *times.announced;
  }

  // A ledger that cannot be read tells nothing.
  template <class Read>
  auto from_ledger(AttemptNumber attempt, const Read& read) const -> decltype(read(std::declval<File&>())) {
    try {
      const auto run = open_run_directory(watch_.directory());
      const auto ledger = run->open(ledger_name(attempt), OpenMode::read);
      if (ledger) return read(*ledger);
    } catch (const Error& error) {
      log_warning("the ledger of attempt {}: {}", attempt, error.what());
    }
    return {};
  }
  LedgerLife story_of(AttemptNumber attempt) const {
    return from_ledger(attempt, [&](const File& ledger) { return read_life(attempt, ledger); });
  }
  LossesByStep losses_of(AttemptNumber attempt, std::int64_t after) const {
    // Bounds the memory: the ledger of a long run has millions of losses.
    constexpr std::size_t kMost = 1 << 20;
    return from_ledger(attempt, [&](const File& ledger) { return losses_after(ledger, after, kMost); });
  }

  int report() {
    std::vector<std::string> faults;
    int number = 0;
    for (const RehearsedLife& life : lives_) {
      print_life(std::cout, ++number, life);
      for (const std::string& fault : faults_of(life)) {
        faults.push_back("life " + std::to_string(number) + ": " + fault);
      }
    }
    if (watch_.directory().empty()) {
      faults.emplace_back("no run directory was found: name it with --directory");
    } else {
      check_last_life(faults);
      verify(faults);
    }
    std::cout << (faults.empty() ? "nothing was lost\n" : "NOT PROVEN: " + faults.front() + "\n");
    if (faults.empty() && !any_computed_again()) {
      std::cout
          << "not proven: that the resumed run computes the same. No step was computed again, so nothing was "
             "compared;\n  holdfast check -- COMMAND compares every step after a resume\n";
    }
    return static_cast<int>(faults.empty() ? ExitCode::complete : ExitCode::difference);
  }

  bool any_computed_again() const {
    return std::any_of(lives_.begin(), lives_.end(),
                       [](const RehearsedLife& life) { return life.computed_again > 0; });
  }

  void check_last_life(std::vector<std::string>& faults) const {
    if (last_.attempt == 0) return;  // the life before reports that
    std::cout << "last life: attempt " << last_.attempt << ", from step " << format_count(last_.began_at)
              << " to " << format_count(last_.durable_step) << ", " << to_text(last_.ending) << '\n';
    // 75 is the usual end, because this life was asked to stop. 0: it became complete before.
    if (last_.ending.code() != 0 && last_.ending.code() != static_cast<int>(ExitCode::interrupted)) {
      faults.push_back("the last life ended with " + to_text(last_.ending));
    }
  }

  void verify(std::vector<std::string>& faults) const {
    const auto directory = open_run_directory(watch_.directory());
    int good = 0;
    const Listing listing = list_checkpoints(*directory);
    for (const Listed& listed : listing.checkpoints) {
      Progress progress("verifying " + listed.name, listed.bytes);
      const Examined examined = examine(*directory, listed.name, Depth::every_byte, progress.done());
      if (examined.state == FileState::ok) {
        ++good;
      } else {
        faults.push_back(listed.name + ": " + word_of(examined.state) + ", " + examined.reason);
      }
    }
    for (const std::string& name : listing.damaged) faults.push_back(name + ": did not verify at a start");
    std::cout << "files     " << good << " of " << listing.checkpoints.size() + listing.damaged.size()
              << " verified, every byte\n";
  }

  const RehearseRequest& options_;
  SignalInbox inbox_;  // first, because threads of the server inherit its signal mask
  Duration in_;
  Duration notice_;
  Duration grace_;
  MetadataServer server_;
  std::map<std::string, std::string> environment_;
  RunWatch watch_;
  std::vector<RehearsedLife> lives_;
  RehearsedLife last_;
  int cancelled_ = 0;
};

int run_rehearse(const RehearseRequest& options) {
  if (options.command.empty()) {
    throw UsageError(
        "no command given: put it last, after two dashes: holdfast rehearse -- ./train --lr 0.1");
  }
  return run_apart([&] { return Rehearsal(options).run(); });
}

constexpr char kRehearseFooter[] =
    R"(Starts COMMAND with a simulated metadata service on 127.0.0.1, which announces the end of the machine. Ends COMMAND at
the deadline, starts it again, and reports what was seen, committed and resumed. The last life is stopped with
SIGTERM, so the run stays resumable. COMMAND really trains, in its own run directory.
An end that loses no step computes no step again: then the report ends with "not proven", and holdfast check is
the command that compares every step after a resume.

Exit code: 0 nothing was lost, also where the report ends with "not proven"; 1 something was lost, or there is no
proof that nothing was; 64 wrong options.

Example:
  holdfast rehearse --in 30s --notice 120s --kill -- ./train --checkpoint-dir /mnt/ckpt/rehearsal)";

}  // namespace

void add_rehearse(CLI::App& app, const std::vector<std::string>& wrapped, Command& chosen) {
  const auto options = std::make_shared<RehearseRequest>();
  // CLI11 never saw these words: it would split an argument such as [1,2].
  options->command = wrapped;
  CLI::App* const command = app.add_subcommand("rehearse",
                                               "Interrupt your own trainer as a cloud provider would, and "
                                               "report what is lost: rehearse [OPTIONS] -- COMMAND...");
  add_time(*command, "--in", options->in, "time from the start of training to the notice");
  add_time(*command, "--notice", options->notice,
           "time from the notice to the end of the machine (default 2min; gcp and azure 30s)");
  command->add_flag(
      "--kill", options->kill,
      "SIGKILL at the deadline; otherwise SIGTERM, and SIGKILL 5 s after HOLDFAST_TERM_GRACE (25s)");
  command->add_option("--repeat", options->repeat, "number of notices; each interrupts a new life of COMMAND")
      ->check(CLI::Range(1, 100'000))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--provider", options->provider, "metadata service to simulate: ec2, gcp or azure")
      ->check(CLI::IsMember({"ec2", "gcp", "azure"}))
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option("--directory", options->directory,
                   "the run directory (default: searched among the folders that COMMAND holds open)")
      ->type_name("DIR");
  command->footer(kRehearseFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_rehearse(*options); }; });
}

}}  // namespace holdfast::v0_2
