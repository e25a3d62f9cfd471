// The canonical encoding behind `state=`; docs/file_format.md#the-state-digest specifies it. Numbers are
// little-endian. `text` is its length as u64 and its bytes. A double is its bits as u64. Sorting is by bytes.
//
//   text  "holdfast state 1"
//   u64   number of tensors outside kRankGroup; for each, sorted by name:
//           text name, text type name, u64 rank, i64 dimensions…, 16 bytes tensor digest (snapshot/digest.h)
//   u64   number of `decides` attributes; for each, sorted by name:
//           text name, u8 kind, value
//             kind 0 bool: u8      1 integer: i64     2 double: u64       3 text: text
//             kind 4 integers: u64 count, i64…   5 doubles: u64 count, u64…   6 texts: u64 count, text…
//
// `state=` is the XXH3-128 of all that. Other tools compare it between versions, so never change it: add a
// "holdfast state 2" beside it.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/snapshot/snapshot.h"

namespace holdfast { inline namespace v0_2 {
namespace {

class Encoder {
 public:
  void put(bool value) { bytes_.push_back(value ? '\1' : '\0'); }
  void put(std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<char>(value >> shift));
  }
  void put(std::int64_t value) { put(static_cast<std::uint64_t>(value)); }
  void put(double value) { put(std::bit_cast<std::uint64_t>(value)); }
  void put(std::string_view text) {
    put(std::uint64_t{text.size()});
    bytes_.append(text);
  }
  void put(const std::string& text) { put(std::string_view(text)); }
  void put(const Digest& digest) {
    bytes_.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
  }
  template <class T>
  void put(const std::vector<T>& items) {
    put(std::uint64_t{items.size()});
    for (const T& item : items) put(item);
  }
  void put(const AttributeValue& value) {
    bytes_.push_back(static_cast<char>(value.index()));
    std::visit([this](const auto& item) { put(item); }, value);
  }

  Digest digest() const { return digest_of(std::as_bytes(std::span(bytes_))); }

 private:
  std::string bytes_;
};

// The kinds in the encoding are the variant's indices: another order would change every digest.
static_assert(std::is_same_v<std::variant_alternative_t<1, AttributeValue>, std::int64_t> &&
              std::is_same_v<std::variant_alternative_t<3, AttributeValue>, std::string> &&
              std::is_same_v<std::variant_alternative_t<6, AttributeValue>, std::vector<std::string>>);

}  // namespace

Digest state_digest(const Snapshot& snapshot, std::span<const Digest> tensor_digests) {
  const std::vector<TensorSpec>& tensors = snapshot.layout->tensors();
  if (!tensor_digests.empty() && tensor_digests.size() != tensors.size()) {
    throw Error("state_digest needs one digest a tensor");
  }
  std::vector<std::size_t> order;
  order.reserve(tensors.size());
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    // State of single ranks differs with their number, and equal runs must have equal digests.
    if (!tensors[index].name.starts_with(kRankGroup)) order.push_back(index);
  }
  // File order depends on the order of add(); the digest must not.
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return tensors[a].name < tensors[b].name; });

  Encoder encoder;
  encoder.put(std::string_view("holdfast state 1"));
  encoder.put(std::uint64_t{order.size()});
  for (const std::size_t index : order) {
    encoder.put(tensors[index].name);
    encoder.put(name_of(tensors[index].dtype));
    encoder.put(tensors[index].shape);
    encoder.put(tensor_digests.empty() ? tensor_digest(snapshot.bytes(index)) : tensor_digests[index]);
  }

  const auto deciding = std::count_if(snapshot.attributes.begin(), snapshot.attributes.end(),
                                      [](const auto& item) { return item.second.role == Role::decides; });
  encoder.put(static_cast<std::uint64_t>(deciding));
  // Attributes lie in a map, so their order is that of the names.
  for (const auto& [name, attribute] : snapshot.attributes) {
    if (attribute.role != Role::decides) continue;
    encoder.put(name);
    encoder.put(attribute.value);
  }
  return encoder.digest();
}

}}  // namespace holdfast::v0_2
