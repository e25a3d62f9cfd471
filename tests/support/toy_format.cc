#include "toy_format.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

#include "holdfast/base/bits.h"

namespace holdfast::test {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 31;
  x *= 0x7fb5d329728ea185;
  x ^= x >> 27;
  x *= 0x81dadef4bc2dd44d;
  return x ^ (x >> 33);
}

std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t sum = bytes.size();
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    sum = mix(sum ^ word) + 0x9e3779b97f4a7c15;
  }
  return sum;
}

std::vector<std::byte> body_of(const Toy& toy) {
  std::vector<std::byte> body(toy.body_blocks * kToyBlock);
  for (std::size_t i = 0; i < body.size(); i += 8) {
    const std::uint64_t word = mix(mix(toy.attempt) + static_cast<std::uint64_t>(toy.step) * 4099 + i);
    std::memcpy(body.data() + i, &word, 8);
  }
  return body;
}

// Text in the block, its checksum in the last 8 bytes.
std::vector<std::byte> head_of(const Toy& toy, std::span<const std::byte> body) {
  std::ostringstream text;
  text << "TOY " << toy.version << ' ' << toy.step << ' ' << toy.attempt << ' ' << toy.finite << ' '
       << body.size() << ' ' << checksum(body) << ' ' << toy.ancestry.size();
  for (const auto& [attempt, step] : toy.ancestry) text << ' ' << attempt << ' ' << step;
  std::size_t values = 0;
  for (const auto& [name, by_step] : toy.metrics) values += by_step.size();
  text << ' ' << toy.unix_seconds.value_or(-1) << ' ' << values;
  for (const auto& [name, by_step] : toy.metrics) {
    for (const auto& [step, value] : by_step) text << ' ' << name << ' ' << step << ' ' << bits_hex(value);
  }
  text << '\n';
  std::vector<std::byte> head(kToyBlock);
  std::memcpy(head.data(), text.str().data(), text.str().size());
  const std::uint64_t sum = checksum(std::span(head).first(kToyBlock - 8));
  std::memcpy(head.data() + kToyBlock - 8, &sum, 8);
  return head;
}

struct AlignedBuffer {
  explicit AlignedBuffer(std::span<const std::byte> from)
      : size(from.size()), data(static_cast<std::byte*>(std::aligned_alloc(kToyBlock, from.size()))) {
    std::memcpy(data.get(), from.data(), from.size());
  }
  struct Free {
    void operator()(std::byte* pointer) const { std::free(pointer); }
  };
  std::size_t size;
  std::unique_ptr<std::byte, Free> data;
  std::span<const std::byte> bytes() const { return {data.get(), size}; }
};

// The head of a file, and the checksum in it decide.
class ArrivingToy final : public ArrivingCopy {
 public:
  ArrivingToy(std::vector<std::byte> head, std::uint64_t length, std::uint64_t sum)
      : head_(std::move(head)), length_(length), sum_(sum) {}
  void append(std::span<const std::byte> bytes) override {
    all_.insert(all_.end(), bytes.begin(), bytes.end());
  }
  bool is_whole() override {
    if (all_.size() != kToyBlock + length_ || !std::equal(head_.begin(), head_.end(), all_.begin()))
      return false;
    return checksum(std::span(all_).subspan(kToyBlock)) == sum_;
  }

 private:
  const std::vector<std::byte> head_;
  const std::uint64_t length_;
  const std::uint64_t sum_;
  std::vector<std::byte> all_;
};

Verdict damaged(const std::string& reason) { return {.kind = Verdict::Kind::damaged, .reason = reason}; }

}  // namespace

std::vector<std::byte> toy_bytes(const Toy& toy) {
  const std::vector<std::byte> body = body_of(toy);
  std::vector<std::byte> all = head_of(toy, body);
  all.insert(all.end(), body.begin(), body.end());
  return all;
}

void write_toy(File& file, const Toy& toy) {
  const AlignedBuffer all(toy_bytes(toy));
  for (std::uint64_t at = kToyBlock; at < all.size; at += kToyBlock) {
    file.write_at(all.bytes().subspan(at, kToyBlock), at);
  }
  file.write_at(all.bytes().first(kToyBlock), 0);
}

CommitRequest toy_request(const Toy& toy) {
  return {.step = toy.step,
          .bytes = (1 + toy.body_blocks) * kToyBlock,
          .ancestry = toy.ancestry,
          .write = [toy](File& file) { write_toy(file, toy); }};
}

Verdict ToyVerifier::inspect(const File& file, Depth depth, bool uncached) {
  const auto read = [&](std::span<std::byte> to, std::uint64_t at) {
    return uncached ? file.read_uncached_at(to, at) : file.read_at(to, at);
  };
  std::vector<std::byte> head(kToyBlock);
  const bool whole = read(head, 0) == kToyBlock;
  std::uint64_t sum = 0;
  std::memcpy(&sum, head.data() + kToyBlock - 8, 8);
  const std::string text(reinterpret_cast<const char*>(head.data()), kToyBlock - 8);
  std::istringstream in(text);
  std::string magic;
  int version = 0;
  Verdict verdict;
  std::uint64_t length = 0;
  std::uint64_t body_sum = 0;
  std::size_t ancestors = 0;
  in >> magic >> version >> verdict.step >> verdict.attempt >> verdict.finite >> length >> body_sum >>
      ancestors;
  const bool readable = whole && magic == "TOY" && sum == checksum(std::span(head).first(kToyBlock - 8));
  const Question question{readable ? verdict.step : -1, depth, uncached};
  asked.push_back(question);
  if (answer) {
    if (auto given = answer(question)) return *given;
  }
  if (!readable) return damaged("its head is damaged");
  if (version > 1)
    return {.kind = Verdict::Kind::newer_format, .reason = "version " + std::to_string(version)};
  for (std::size_t i = 0; i < ancestors; ++i) {
    AttemptNumber attempt = 0;
    in >> attempt >> verdict.ancestry[attempt];
  }
  std::int64_t seconds = -1;
  std::size_t values = 0;
  in >> seconds >> values;
  if (seconds >= 0) verdict.unix_seconds = seconds;
  for (std::size_t i = 0; i < values; ++i) {
    std::string name;
    std::int64_t step = 0;
    std::string bits;
    in >> name >> step >> bits;
    verdict.metrics[name][step] = double_from_bits_hex(bits).value_or(0);
  }
  if (file.size() != kToyBlock + length) return damaged("its length is wrong");
  if (depth == Depth::head) return verdict;
  std::vector<std::byte> body(length);
  if (read(body, kToyBlock) != length || checksum(body) != body_sum) return damaged("its body is damaged");
  return verdict;
}

std::unique_ptr<ArrivingCopy> ToyVerifier::expect_copy(const File& file) {
  if (inspect(file, Depth::head, true).kind != Verdict::Kind::good) return nullptr;
  std::vector<std::byte> head(kToyBlock);
  file.read_uncached_at(head, 0);
  std::istringstream in(std::string(reinterpret_cast<const char*>(head.data()), kToyBlock - 8));
  std::string magic;
  std::int64_t number = 0;
  std::uint64_t length = 0;
  std::uint64_t sum = 0;
  in >> magic >> number >> number >> number >> number >> length >> sum;
  return std::make_unique<ArrivingToy>(std::move(head), length, sum);
}

}  // namespace holdfast::test
