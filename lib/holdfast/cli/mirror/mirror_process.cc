#include "holdfast/cli/mirror/mirror_process.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <new>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/process/process_threads.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kAskAgain = std::chrono::seconds(2);
constexpr Duration kShortLife = std::chrono::seconds(5);
constexpr Duration kPause = std::chrono::seconds(1);         // after a short life
constexpr Duration kRefusedPause = std::chrono::seconds(5);  // where the machine allows no process
constexpr std::size_t kLongestMessage = 4096;
constexpr char kStart = 's';
constexpr char kEnd = 'e';
constexpr char kSuperseded = 'x';
constexpr Duration kLookAtActivity = std::chrono::milliseconds(500);

std::optional<std::string> receive(int socket) {
  std::array<char, kLongestMessage> buffer;
  const ssize_t got = recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got <= 0) return std::nullopt;
  return std::string(buffer.data(), static_cast<std::size_t>(got));
}

void send_text(int socket, const std::string& text) {
  const std::string cut = text.substr(0, kLongestMessage);
  send(socket, cut.data(), cut.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

// How often each of its threads has run; empty if it has ended.
std::string activity_of(pid_t process) {
  std::string all;
  for (const pid_t thread : thread_ids(process)) {
    std::ifstream status("/proc/" + std::to_string(process) + "/task/" + std::to_string(thread) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.find("ctxt_switches") != std::string::npos) all += line + "\n";
    }
  }
  return all;
}

}  // namespace

// The mirror's own life: it serves requests "s<serial>" and "e<serial>" with "<serial> <code> <text>".
class MirrorProcess::Served {
 public:
  Served(const MirrorRequest& request, int socket, SharedWithSuccessor& shared)
      : socket_(socket), standby_(request.standby), shared_(shared), run_(request, [this] { serve(); }) {
    for (const auto& claim : shared_.claims) {
      if (claim != 0) run_.copies().add_earlier_claim(claim);
    }
  }

  int live() {
    try {
      for (;;) {
        // Before the first trainer nothing goes home.
        while (!shared_.started || shared_.without_home) {
          run_.pace().wait(std::chrono::seconds(1));
          look_for_start();
        }
        const int code = mirror_until_told();
        if (run_.told_to_stop()) return code;
        answer_end(code);
        // run() has returned because it was told that nothing newer comes. A new trainer may come all the
        // same.
        run_.pace().wait(std::chrono::milliseconds(100));
      }
    } catch (const MirrorStopped&) {
      return static_cast<int>(ExitCode::interrupted);
    }
  }

 private:
  int mirror_until_told() {
    try {
      return run_.mirror();
    } catch (const SupersededError& error) {
      refused_ = {static_cast<int>(ExitCode::superseded), error.what()};
      log_error(refused_.second);
      send_text(socket_, kSuperseded + refused_.second);
    } catch (const Error& error) {
      // The trainer goes on: its checkpoints are in the run directory, and the supervisor hears of this at
      // the trainer's end.
      refused_ = {static_cast<int>(error.exit_code()), error.what()};
      log_error("{}; training goes on, and nothing newer goes home", error.what());
    }
    // Stays, because every request is still to be answered with this refusal.
    for (;;) run_.pace().wait(std::chrono::seconds(1));
  }

  // What it claims and sees is the successor's as well, from the moment at which it does.
  PreparedStart prepare() {
    if (!shared_.without_home.exchange(false)) {
      shared_.newest_attempt = 0;
      return run_.prepare({.changed = [this, known = std::size_t{0}](const StartTries& tries) mutable {
        for (; known < tries.claims.size(); ++known) shared_.add(tries.claims[known]);
        if (!tries.newest) return;
        shared_.newest_step = tries.newest->step;
        shared_.newest_attempt = tries.newest->attempt;
      }});
    }
    StartTries tries;
    for (const auto& claim : shared_.claims) {
      if (claim != 0) tries.claims.push_back(claim);
    }
    if (shared_.newest_attempt != 0) {
      tries.newest = FileId{.attempt = shared_.newest_attempt, .step = shared_.newest_step};
    }
    return run_.go_alone(std::move(tries));
  }

  // Called between the blocks of a copy, too.
  void serve() {
    // An answer may wait in the pace, and the pace calls this function.
    if (serving_) return;
    serving_ = true;
    try {
      while (const auto request = receive(socket_)) serve(*request);
    } catch (...) {
      serving_ = false;
      throw;
    }
    serving_ = false;
  }

  void serve(const std::string& request) {
    // A request that came twice must not claim a second attempt.
    const std::string serial = request.substr(1);
    if (const auto known = answers_.find(serial); known != answers_.end())
      return send_text(socket_, known->second);
    if (request.front() == kEnd) {
      look_for_start();
      if (!shared_.started) return answer(serial, 0, "");  // no trainer has ever started
      ending_ = serial;
      // Nobody trains any more, so the copy may take the whole volume.
      run_.pace().lift_limit();
      run_.copies().finish();
      if (refused_.first != 0) answer(serial, refused_.first, refused_.second);
      return;
    }
    if (refused_.first != 0) return answer(serial, refused_.first, refused_.second);
    try {
      const PreparedStart start = prepare();
      shared_.started = true;
      answer(serial, 0, std::to_string(start.attempt));
    } catch (const MirrorStopped&) {
      throw;
    } catch (const Error& error) {
      answer(serial, static_cast<int>(error.exit_code()), error.what());
    }
  }

  // A standby prepares its start itself.
  void look_for_start() {
    if (standby_ && run_.a_trainer_began()) shared_.started = true;
  }

  void answer_end(int code) {
    if (ending_.empty()) return;
    answer(std::exchange(ending_, {}), code, code == 0 ? "" : "the newest checkpoint is not home");
  }

  void answer(const std::string& serial, int code, const std::string& text) {
    answers_[serial] = serial + " " + std::to_string(code) + " " + text;
    send_text(socket_, answers_[serial]);
  }

  const int socket_;
  const bool standby_;
  SharedWithSuccessor& shared_;
  bool serving_ = false;
  std::string ending_;
  std::pair<int, std::string> refused_{0, {}};
  std::map<std::string, std::string> answers_;
  MirrorRun run_;
};

MirrorProcess::MirrorProcess(MirrorRequest request) : request_(std::move(request)), front_(getpid()) {
  // Malformed options end the supervisor here, not the mirror later.
  Pace pace(Clock::real());
  FileVerifier verifier;
  open_home({.place = request_.home, .keep = request_.home_keep, .mount = request_.home_mount},
            FileSystem::real(), verifier, pace);
  std::array<int, 2> ends{};
  // Messages stay whole. The front process keeps both ends, so a new mirror takes over the old one's.
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw IoError("socketpair", "", errno);
  }
  // Shared, so that a new mirror knows the claims of the one that died.
  void* const shared =
      mmap(nullptr, sizeof(SharedWithSuccessor), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw IoError("mmap", "", errno);
  shared_ = new (shared) SharedWithSuccessor;
  ours_ = ends[0];
  theirs_ = ends[1];
  if (!start()) throw IoError("fork", "the mirror", errno);
}

MirrorProcess::~MirrorProcess() {
  close(ours_);
  close(theirs_);
  munmap(shared_, sizeof *shared_);
  // The supervisor has a copy of this object: only the front process ends the mirror.
  if (getpid() == front_ && id_ > 0) kill(id_, SIGKILL);
}

bool MirrorProcess::start() {
  started_ = Clock::real().now();
  id_ = fork();
  if (id_ != 0) return id_ > 0;
  shared_->id = getpid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  prctl(PR_SET_NAME, "holdfast-mirror");
  // The front process died before prctl().
  if (getppid() != front_) _exit(128 + SIGTERM);
  setpgid(0, 0);  // a Ctrl-C reaches the front process alone
  // After a restart the mask is the front process's, which blocks nearly everything.
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  close(ours_);
  int code = static_cast<int>(ExitCode::internal);
  try {
    code = Served(request_, theirs_, *shared_).live();
  } catch (const std::exception& error) {
    log_error(what_of(error));
  }
  // Not exit(): buffered output is the front process's.
  _exit(code);
}

bool MirrorProcess::lives_after(pid_t who) {
  const SteadyTime now = Clock::real().now();
  if (who > 0 && who == id_) {
    log_warning("the mirror has died after {}; it is started again", format_duration(now - started_));
    id_ = -1;
    shared_->id = 0;
    // What ends so soon may end again.
    not_before_ = now + (now - started_ < kShortLife ? kPause : Duration::zero());
  }
  if (id_ > 0) return true;
  if (now < not_before_) return false;
  if (start()) {
    said_refused_ = false;
    return true;
  }
  // The training does not end for the want of a mirror.
  if (!std::exchange(said_refused_, true)) {
    log_warning("the mirror cannot be started ({}); tried again every {}", std::strerror(errno),
                format_duration(kRefusedPause));
  }
  not_before_ = now + kRefusedPause;
  return false;
}

void MirrorProcess::ask_for_start() { ask(kStart); }
void MirrorProcess::ask_for_end() { ask(kEnd); }

Duration MirrorProcess::stands_still() {
  const SteadyTime now = Clock::real().now();
  if (now < looked_ + kLookAtActivity) return looked_ - active_;
  looked_ = now;
  const std::string activity = activity_of(shared_->id);
  if (activity.empty() || activity != std::exchange(activity_, activity)) active_ = now;
  return looked_ - active_;
}

void MirrorProcess::do_without_home() {
  activity_.clear();
  looked_ = active_ = Clock::real().now();
  shared_->without_home = true;
  if (const pid_t mirror = shared_->id; mirror > 0) kill(mirror, SIGKILL);  // SIGTERM does not end that wait
}

void MirrorProcess::ask(char what) {
  asked_ = what + std::to_string(++serial_);
  send();
}

void MirrorProcess::send() {
  sent_ = Clock::real().now();
  send_text(ours_, asked_);
}

std::optional<MirrorProcess::Answer> MirrorProcess::answer() {
  while (const auto message = receive(ours_)) {
    if (message->front() == kSuperseded) {
      superseded_by_ = message->substr(1);
      continue;
    }
    const std::size_t first = message->find(' ');
    const std::size_t second = first == std::string::npos ? first : message->find(' ', first + 1);
    // An answer to an earlier request, or a second one to this.
    if (second == std::string::npos || asked_.empty() || message->substr(0, first) != asked_.substr(1))
      continue;
    const auto code = parse_int(message->substr(first + 1, second - first - 1));
    asked_.clear();
    return Answer{.code = static_cast<int>(code.value_or(0)), .text = message->substr(second + 1)};
  }
  // A mirror that dies takes along the requests that it has read.
  if (!asked_.empty() && Clock::real().now() >= sent_ + kAskAgain) send();
  return std::nullopt;
}

}}  // namespace holdfast::v0_2
