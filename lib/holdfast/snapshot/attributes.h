// The part of a training state that is not tensors: counters, options, positions. A flat, ordered map from
// dotted names ("optimizer.group.0.lr") to small typed values.
//
// Every attribute has a role. `decides` attributes influence the next step: a resume compares them, and
// `state=` includes them. `record` attributes are for people (host, versions, loss); they are stored and
// shown, never compared. Doubles are stored and compared by their bits: NaN equals the same NaN, and 0.0
// differs from -0.0.
//
// Errors: a typed getter throws RefusedError with the name if the attribute is missing or of another type (it
// is another program's checkpoint), so loading code needs no checks. set() throws UsageError.
// Threads: a plain value; const methods may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

using AttributeValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                                    std::vector<double>, std::vector<std::string>>;

// True if type and bits are equal.
HOLDFAST_EXPORT bool same_bits(const AttributeValue& a, const AttributeValue& b);

// For messages: `0.1`, `true`, `"adamw"`, `[1, 2, 3]`; doubles with all digits.
HOLDFAST_EXPORT std::string to_text(const AttributeValue& value);

enum class Role { decides, record };

struct Attribute {
  Attribute() = default;
  explicit Attribute(AttributeValue given, Role as = Role::decides) : value(std::move(given)), role(as) {}
  // Assigns instead of constructing: libstdc++ 12 destroys garbage if a variant's copy constructor throws.
  Attribute(const Attribute& other) : role(other.role) { value = other.value; }
  Attribute(Attribute&&) noexcept = default;
  Attribute& operator=(const Attribute&) = default;
  Attribute& operator=(Attribute&&) noexcept = default;
  ~Attribute() = default;

  AttributeValue value;
  Role role = Role::decides;
};

class HOLDFAST_EXPORT Attributes {
 public:
  // Replaces an earlier value. Requires UTF-8 texts and a non-empty UTF-8 name without control characters.
  void set(std::string name, AttributeValue value, Role role = Role::decides);
  void erase(std::string_view name);

  bool has(std::string_view name) const;
  const Attribute* find(std::string_view name) const;  // nullptr if missing

  bool get_bool(std::string_view name) const;
  std::int64_t get_int(std::string_view name) const;
  double get_double(std::string_view name) const;
  const std::string& get_string(std::string_view name) const;
  const std::vector<std::int64_t>& get_ints(std::string_view name) const;
  const std::vector<double>& get_doubles(std::string_view name) const;
  const std::vector<std::string>& get_strings(std::string_view name) const;

  // All attributes whose name starts with `prefix`, in order.
  std::vector<std::pair<std::string, Attribute>> with_prefix(std::string_view prefix) const;

  auto begin() const { return map_.begin(); }
  auto end() const { return map_.end(); }
  std::size_t size() const { return map_.size(); }

 private:
  std::map<std::string, Attribute, std::less<>> map_;
};

}}  // namespace holdfast::v0_2
