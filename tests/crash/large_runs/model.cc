#include "crash/large_runs/model.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>

#include "holdfast/planning/vote_cadence.h"
#include "holdfast/ranks/pulse.h"
#include "holdfast/ranks/rank_channel.h"
#include "holdfast/ranks/rank_names.h"
#include "holdfast/ranks/signs_of_life.h"

namespace holdfast::test::large_runs {
namespace {

using namespace std::chrono_literals;

constexpr Duration kQuiet = 12s;    // before anything happens
constexpr Duration kNotice = 12s;   // a rank is told to stop
constexpr Duration kTrouble = 30s;  // hosts vanish at about this time
constexpr Duration kEnd = 55s;
constexpr Duration kLongestStandstill = 4s;

enum Line { kSigns, kVotes };

class Model {
 public:
  Model(const Setting& setting, std::uint64_t seed)
      : setting_(setting),
        random_(seed),
        options_(pulse_options(setting.world_size(), setting.silence)),
        signs_(setting.world_size(), options_.looks),
        keys_(keys_of_ranks("beat", setting.world_size())) {
    for (int host = 0; host < setting.hosts; ++host) hosts_.push_back(a_host());
    for (int rank = 0; rank < setting.world_size(); ++rank) {
      ranks_.push_back(std::make_unique<Rank>(rank, options_, setting.world_size()));
    }
    Host& first = hosts_.front();
    first.wakes = std::min(first.wakes, first.stands_still + setting.rank_0_stands_still);
    const int vanishing = pick(0, 2);
    for (int i = 0; i < vanishing; ++i)
      hosts_[index(pick(0, setting.hosts - 1))].vanishes = kTrouble + some(500ms);
    told_ = pick(0, setting.world_size() - 1);
  }

  Outcome run() {
    at(0s, [this] { boundary(); });
    for (auto& rank : ranks_) {
      at(some(options_.period), [this, &rank = *rank] { beat(rank); });
      at(some(options_.period) + options_.period, [this, &rank = *rank] { judge(rank); });
    }
    at(2s, [this] { account_ = traffic_; });
    at(kQuiet, [this] { tell_traffic(); });
    while (!events_.empty() && events_.top().time <= kEnd && !over()) {
      now_ = events_.top().time;
      const auto work = std::move(const_cast<Event&>(events_.top()).work);
      events_.pop();
      work();
    }
    for (const auto& rank : ranks_) {
      if (vanished(*rank)) outcome_.lost.push_back(rank->number);
    }
    if (!outcome_.lost.empty()) outcome_.unaware = living() - aware_;
    return std::move(outcome_);
  }

 private:
  struct Host {
    Duration latency{};
    Duration jitter{};
    Duration stands_still{};  // from then …
    Duration wakes{};         // … to then
    Duration vanishes = 1h;
  };
  struct Rank {
    Rank(int the_number, const PulseOptions& options, int world_size)
        : number(the_number),
          judge(the_number, options.looks, options.answer_every, options.looks_to_tell),
          cadence(world_size) {}
    int number;
    SilenceJudge judge;
    run::VoteCadence cadence;
    std::int64_t signs = 0;
    std::string told;
    std::array<Duration, 2> last_up{}, last_down{};
    std::int64_t votes = 0;
    bool pending = false;               // a ballot
    std::optional<Agreed> result = {};  // of it
  };
  struct Event {
    Duration time;
    std::uint64_t number;
    std::function<void()> work;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };
  struct Traffic {
    std::uint64_t messages = 0, in = 0, out = 0;
    Duration busy{};
  };

  static std::size_t index(int number) { return static_cast<std::size_t>(number); }
  int size() const { return setting_.world_size(); }
  int pick(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }
  Duration some(Duration most) {
    return Duration(std::uniform_int_distribution<std::int64_t>(0, most.count())(random_));
  }
  Host& host_of(const Rank& rank) { return hosts_[index(rank.number / setting_.ranks_of_host)]; }
  bool vanished(const Rank& rank) { return host_of(rank).vanishes <= now_; }
  int living() {
    return static_cast<int>(
        std::count_if(ranks_.begin(), ranks_.end(), [&](const auto& rank) { return !vanished(*rank); }));
  }

  Host a_host() {
    Host host{.latency = 50us + some(500us), .jitter = 200us};
    if (pick(1, 20) == 1) host.jitter = some(800ms);  // a bad link: retransmissions
    if (pick(1, 16) == 1) {
      host.stands_still = kTrouble - 5s + some(10s);
      host.wakes = host.stands_still + some(kLongestStandstill);
    }
    return host;
  }

  void at(Duration time, std::function<void()> work) {
    events_.push({time, ++events_so_far_, std::move(work)});
  }
  // A host that stands still does it later; one that has vanished never.
  void on(const Rank& rank, Duration time, std::function<void()> work) {
    Host& host = host_of(rank);
    if (time >= host.stands_still && time < host.wakes) time = host.wakes + some(1ms);
    at(time, [this, &host, work = std::move(work)] {
      if (now_ < host.vanishes) work();
    });
  }
  // A message stays behind those before it.
  Duration arrival(const Rank& rank, Duration sent, Duration& last) {
    const Host& host = host_of(rank);
    const Duration way = rank.number == 0 ? 20us : host.latency + some(host.jitter);
    return last = std::max(last + 1us, sent + way);
  }

  // c10d's TCPStore: set and append have no answer. A read of one key is a compareSet.
  using Words = std::vector<std::string>;
  using Then = std::function<void(Words)>;

  static std::size_t bytes_of(const Words& words) {
    std::size_t bytes = 0;
    for (const std::string& word : words) bytes += sizeof(std::uint64_t) + word.size();
    return bytes;
  }
  void send(Rank& rank, Line line, const Words& words, std::function<void()> arrives) {
    constexpr std::size_t kHead = 5;
    traffic_.in += kHead + bytes_of(words);
    ++traffic_.messages;
    on(*ranks_.front(), arrival(rank, now_, rank.last_up[line]),
       [this, count = words.size(), arrives = std::move(arrives)] {
         work(setting_.message + setting_.value * count);
         arrives();
       });
  }
  void work(Duration cost) {
    free_ = std::max(free_, now_) + cost;
    traffic_.busy += cost;
  }
  void answer(Rank& rank, Line line, Words words, Then then) {
    traffic_.out += std::max<std::size_t>(bytes_of(words), 1);
    work(setting_.answer + setting_.value * words.size());
    on(rank, arrival(rank, free_, rank.last_down[line]),
       [words = std::move(words), then = std::move(then)] { then(words); });
  }
  void set(Rank& rank, Line line, const std::string& key, const std::string& value) {
    send(rank, line, {key, value}, [this, key, value] {
      values_[key] = value;
      for (const auto& wake : std::exchange(waits_[key], {})) wake();
      waits_.erase(key);
    });
  }
  void wait(Rank& rank, Line line, const std::string& key, Then then) {
    send(rank, line, {key}, [this, &rank, line, key, then = std::move(then)]() mutable {
      if (values_.contains(key)) return answer(rank, line, {}, std::move(then));
      waits_[key].push_back([this, &rank, line, then = std::move(then)] { answer(rank, line, {}, then); });
    });
  }
  void append(Rank& rank, Line line, const std::string& key, const std::string& value) {
    send(rank, line, {key, value}, [this, key, value] { values_[key] += value; });
  }
  void add(Rank& rank, Line line, const std::string& key, Then then) {
    send(rank, line, {key, ""}, [this, &rank, line, key, then = std::move(then)]() mutable {
      std::string& sum = values_[key];
      sum = std::to_string((sum.empty() ? 0 : std::stoll(sum)) + 1);
      answer(rank, line, {sum}, std::move(then));
    });
  }
  void erase(Rank& rank, Line line, const std::string& key, Then then) {
    send(rank, line, {key}, [this, &rank, line, key, then = std::move(then)]() mutable {
      values_.erase(key);
      answer(rank, line, {}, std::move(then));
    });
  }
  void read(Rank& rank, Line line, const Words& keys, Then then) {
    send(rank, line, keys, [this, &rank, line, keys, then = std::move(then)]() mutable {
      Words values;
      for (const std::string& key : keys) values.push_back(values_[key]);
      answer(rank, line, std::move(values), std::move(then));
    });
  }
  // As Pulse::State::beat().
  void beat(Rank& rank) {
    const bool asks = rank.signs % options_.answer_every == 0 || rank.judge.suspects();
    const std::string sign = std::to_string(sign_of(++rank.signs, 0, false));
    const std::string& own = keys_[index(rank.number)];
    const auto again = [this, &rank, next = now_ + options_.period] {
      on(rank, std::max(next, now_), [this, &rank] { beat(rank); });
    };
    set(rank, kSigns, own, sign);
    if (rank.number != 0) {
      if (!asks) return again();
      return read(rank, kSigns, {"pulse"}, [this, &rank, again](const Words& words) {
        if (words[0] != rank.told) learn(rank, tale_of(rank.told = words[0]));
        again();
      });
    }
    if (rank.signs == 1) {
      for (const std::string& key : keys_) set(rank, kSigns, key, "0");
    }
    // multiGet asks twice: first whether all are there.
    send(rank, kSigns, keys_, [this, &rank, again] {
      answer(rank, kSigns, {}, [this, &rank, again](const Words&) {
        read(rank, kSigns, keys_, [this, &rank, again](const Words& signs) {
          Tale tale = signs_.poll(signs);
          set(rank, kSigns, "pulse", text_of(tale, rank.signs));
          learn(rank, std::move(tale));
          again();
        });
      });
    });
  }

  // As Pulse::State::watch().
  void learn(Rank& rank, Tale tale) {
    rank.judge.learn(std::move(tale));
    if (rank.judge.decide(false)) named(rank);
  }
  void judge(Rank& rank) {
    on(rank, now_ + options_.period, [this, &rank, before = now_] {
      bool lost = rank.judge.poll(false);
      if (setting_.counts_time) {
        for (Duration time = before + options_.period; time < now_; time += options_.period) {
          lost = rank.judge.poll(false) || lost;
        }
      }
      if (lost) named(rank);
      judge(rank);
    });
  }
  void named(const Rank& rank) {
    ++aware_;
    Duration loss = 1h;
    for (const int one : rank.judge.lost()) {
      const Host& host = host_of(*ranks_[index(one)]);
      loss = std::min(loss, host.vanishes);
      if (host.vanishes > now_) outcome_.innocent.push_back(one);
    }
    if (loss < now_) outcome_.named = std::max(outcome_.named, now_ - loss);
  }
  bool over() { return aware_ > 0 && aware_ == living(); }

  // A step boundary, at which all ranks are: gradients keep them together. It waits for the results of the votes.
  void boundary() {
    for (const auto& rank : ranks_) {
      if (rank->pending && !rank->result) return at(now_ + 1ms, [this] { boundary(); });
    }
    if (now_ > kTrouble - 6s) return;  // later on hosts vanish, and gradients end with them
    int stopping = 0;
    for (const auto& rank : ranks_) {
      if (rank->pending) {
        rank->cadence.learn({.highest = rank->result->step, .step_time = rank->result->step_time});
        stopping += rank->result->stop >= 0 ? 1 : 0;
        rank->pending = false;
        rank->result.reset();
      }
    }
    if (stopping > 0) {
      outcome_.one_step = stopping == size();
      outcome_.stopped = now_ - kNotice;
      return;
    }
    for (const auto& rank : ranks_) {
      if (rank->cadence.votes_at(step_)) vote(*rank);
    }
    ++step_;
    at(now_ + setting_.step, [this] { boundary(); });
  }
  void vote(Rank& rank) {
    const bool stop = rank.number == told_ && now_ >= kNotice;
    const Ballot ballot =
        ballot_of({.step = step_, .stop = stop, .step_time = setting_.step}, rank.number, size());
    rank.pending = true;
    // As StoreVotes and bring().
    const std::string name = "votes/" + std::to_string(rank.votes++);
    append(rank, kVotes, name, std::string(reinterpret_cast<const char*>(ballot.data()), sizeof ballot));
    add(rank, kVotes, name + "/count", [this, &rank, name](const Words& sum) {
      if (sum[0] != std::to_string(size())) return hear(rank, name);
      read(rank, kVotes, {name}, [this, &rank, name](const Words& words) {
        Ballot largest = ballot_at(words[0], 0);
        for (std::size_t at = 0; at < words[0].size(); at += sizeof largest) {
          largest = larger_of(largest, ballot_at(words[0], at));
        }
        set(rank, kVotes, name + "/all",
            std::string(reinterpret_cast<const char*>(largest.data()), sizeof largest));
        // It erases the keys of the round before.
        const auto erased = [](const Words&) {};
        for (const char* const key : {"", "/count", "/all"}) {
          erase(rank, kVotes, "votes/" + std::to_string(rank.votes - 2) + key, erased);
        }
        hear(rank, name);
      });
    });
  }
  static Ballot ballot_at(const std::string& text, std::size_t at) {
    Ballot ballot;
    std::copy_n(text.data() + at, sizeof ballot, reinterpret_cast<char*>(ballot.data()));
    return ballot;
  }
  void hear(Rank& rank, const std::string& name) {
    wait(rank, kVotes, name + "/all", [this, &rank, name](const Words&) {
      read(rank, kVotes, {name + "/all"},
           [this, &rank](const Words& words) { rank.result = agreed_by(ballot_at(words[0], 0), size()); });
    });
  }

  void tell_traffic() {
    const double seconds = std::chrono::duration<double>(kQuiet - 2s).count();
    outcome_.messages = static_cast<double>(traffic_.messages - account_.messages) / seconds;
    outcome_.bytes_in = static_cast<double>(traffic_.in - account_.in) / seconds;
    outcome_.bytes_out = static_cast<double>(traffic_.out - account_.out) / seconds;
    outcome_.busy = std::chrono::duration<double>(traffic_.busy - account_.busy).count() / seconds;
  }

  const Setting setting_;
  std::mt19937_64 random_;
  const PulseOptions options_;
  std::unordered_map<std::string, std::string> values_;  // of rank 0's store
  SignTable signs_;
  const std::vector<std::string> keys_;
  std::unordered_map<std::string, std::vector<std::function<void()>>> waits_;  // for them
  std::vector<Host> hosts_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::priority_queue<Event> events_;
  std::uint64_t events_so_far_ = 0;
  Duration now_{};
  Duration free_{};  // rank 0's store has answered all before
  Traffic traffic_, account_;
  std::int64_t step_ = 0;
  int told_ = 0;
  int aware_ = 0;
  Outcome outcome_;
};

}  // namespace

Outcome run(const Setting& setting, std::uint64_t seed) { return Model(setting, seed).run(); }

}  // namespace holdfast::test::large_runs
