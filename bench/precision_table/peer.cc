#include "peer.h"

#include <nlohmann/json.hpp>

#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

// torch.compile takes minutes for large models.
constexpr auto kPatience = std::chrono::hours(1);

}  // namespace

Peer::Peer(const std::filesystem::path& root, const std::filesystem::path& folder, const std::string& kind,
           std::function<void()> meanwhile)
    : child_(
          {(root / ".deps/peers/bin/python").string(), (root / "bench/peers/precision_table.py").string(),
           (folder / "job.json").string(), kind},
          {.errors = folder / ("errors-" + kind), .patience = kPatience, .meanwhile = std::move(meanwhile)}) {
  const auto hello = nlohmann::json::parse(child_.read_line(), nullptr, false);
  if (!hello.is_object() || !hello.contains("torch")) throw Error("the peer in Python said nonsense first");
  version_ = hello["torch"].get<std::string>();
}

Window Peer::steps(int count) {
  const auto answer = nlohmann::json::parse(child_.ask(std::to_string(count)), nullptr, false);
  // A loss that is not a number comes as a word that is no JSON.
  if (!answer.is_object() || !answer.contains("seconds")) {
    throw Error("the peer in Python answered nonsense: its loss may have become no number");
  }
  return {.seconds = answer["seconds"].get<double>(), .loss = answer["loss"].get<double>()};
}

}  // namespace holdfast::bench
