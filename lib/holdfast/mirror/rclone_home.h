// HOME as a store that the program rclone speaks to: `rclone:REMOTE:PATH`. Transport, retries, multipart
// uploads and credentials are rclone's business; order, claims and verification are done here.
//
// Objects have the names of the files. A claim is the object `attempts/<number>.<16 hex digits>`, and a
// listing afterwards decides: alone at its number, with nothing higher, it has won. Requires a store that
// lists what was written. In S3 `attempts/<number>` is written first, only where nothing lies (rclone_s3.h):
// most losers end there. An upload cannot be called back, so the winner marks what it goes on from,
// `<its claim>.from.<checkpoint>`. A later start takes that one before newer files of older attempts.
//
// A copy counts after rclone has read it back, and all bytes were what the index of the source says. Each
// call starts a program, so one listing answers all questions within a second.
// Errors: as home.h. Threads: one.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/mirror/home.h"
#include "holdfast/mirror/rclone_list.h"
#include "holdfast/mirror/rclone_program.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr char kRclonePrefix[] = "rclone:";

class RcloneHome final : public Home {
 public:
  // Errors: UsageError for a place without remote and path.
  RcloneHome(const HomeOptions& options, CopyVerifier& verifier, Pace& pace);

  const std::string& name() const override { return name_; }
  AttemptNumber highest() override;
  AttemptNumber claim(AttemptNumber least) override;
  AttemptNumber claim_after(AttemptNumber after, AttemptNumber least = 0) override;
  bool is_own(AttemptNumber highest) override;
  void check_not_superseded() override { check_claims(Listing::anew); }
  std::vector<HomeFile> list() override;
  std::vector<HomeFile> starts() override;
  void begin_from(FileId start) override;
  void put(const MirrorSource& source) override;
  bool holds(const MirrorSource& source) override;
  void retire(const MirrorSource& newest) override;
  void read(const HomeFile& file, const ByteSink& sink) override;
  bool is_store() const override { return true; }
  std::optional<std::string> note(const std::string& name) override;
  void put_note(const std::string& name, const std::string& text) override;
  void remove_note(const std::string& name) override;
  void put_kernels(Directory& folder) override;
  void fetch_kernels(Directory& folder) override;

 private:
  struct Claim {
    AttemptNumber number = 0;
    std::string name;
    std::optional<FileId> start = {};  // set: no claim, but a mark of the claim with that number
  };

  // `recent`: one that is at most a second old will do, if nothing was written since it began.
  enum class Listing { recent, anew };

  std::string at(const std::string& name) const;
  const std::vector<RcloneEntry>& entries(Listing which);
  std::vector<Claim> claims_and_marks(Listing which);
  std::vector<Claim> claims(Listing which);
  void check_claims(Listing which);
  void changed();
  AttemptNumber claim_once(AttemptNumber least);
  bool sends_conditions();
  bool take(AttemptNumber number, const std::string& claim);
  void forget_old_claims(const std::vector<Claim>& all);
  RcloneEnd write(const std::string& name, const std::string& text, std::vector<std::string> options = {});
  RcloneEnd remove(const std::string& name);
  void copy_kernels(const std::string& from, const std::string& to);
  [[noreturn]] void fail(const std::string& what, const RcloneEnd& end) const;

  const std::string name_;
  const std::string root_;  // REMOTE:PATH
  const int keep_;
  CopyVerifier& verifier_;
  Pace& pace_;
  RcloneProgram rclone_;
  AttemptNumber own_ = 0;  // the highest own claim
  std::string own_name_;
  std::optional<bool> sends_conditions_;
  AttemptNumber taken_ = 0;      // by another machine, which may not have claimed it yet
  SteadyTime taken_at_{};        // when this machine saw that
  std::set<std::string> tried_;  // names of all own claims, lost and unconfirmed ones too
  std::vector<RcloneEntry> listed_;
  std::optional<SteadyTime> listed_at_;  // nullopt: something was written since
  std::int64_t writes_ = 0;
  std::map<FileId, bool> verified_;  // copies that this process has read back; value: is the state finite
};

// nullopt unless it is the name of a mark in a store: of that claim number, and what it goes on from.
std::optional<std::pair<AttemptNumber, FileId>> parse_store_mark(const std::string& name);
// nullopt unless it is the name of a claim in a store.
std::optional<AttemptNumber> parse_store_claim(const std::string& name);

}}  // namespace holdfast::v0_2
