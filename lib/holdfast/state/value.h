// Variables of a program as parts of its training state, without a class of their own:
//
//   state.value("hidden", hidden);                              // a carried hidden state
//   state.value("loop", std::tie(epoch, window, rate, engine));  // several variables, one name
//   state.value("cart", cart, &Cart::position, &Cart::speed);    // these members of a struct
//
// A variable is: bool, an integer, an enum, float or double; std::string; at::Tensor; an engine of <random>
// (mt19937, minstd_rand, ranlux48 …) or a distribution; std::optional, std::pair, std::tuple, std::vector,
// std::array, std::map or std::unordered_map of these. Another type is a compile error: stateful.h.
//
// Errors: state.value(): as TrainState::add(). Resume: RefusedError (78) if the type differs from the
// recorded one; the variables then keep their values. Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <locale>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/state/stateful.h"

namespace holdfast { inline namespace v0_2 {

// Names in the file: docs/training_state.md.
//
// Requires: the variable outlives the state. Its value after after_step() is the one that the next step
// needs. A tensor is saved without its graph, and may change its shape from save to save. Resume replaces it
// by a new tensor on the device of the program's own; if that is undefined, on the recorded type of device.
// A map gets the recorded keys, no others. An unordered_map is saved in the order of its keys (by `<`).
// The order in which it iterates is no state: a loop that depends on it belongs over a std::map.

// A variable behind a type-erased interface. `read` reads everything, and returns the function that assigns
// it.
struct ValueAccess {
  std::string type;  // as resume compares it: "tuple<int64, float32>"
  std::function<void(StateWriter& out)> save;
  std::function<std::function<void()>(const StateReader& in)> read;
};

namespace value_io {

// Text as a string attribute, or as bytes if an attribute cannot hold it.
HOLDFAST_EXPORT void put_text(StateWriter& out, const std::string& name, const std::string& text);
HOLDFAST_EXPORT std::string get_text(const StateReader& in, const std::string& name);
HOLDFAST_EXPORT void put_tensor(StateWriter& out, const std::string& name, const at::Tensor& tensor);
HOLDFAST_EXPORT at::Tensor get_tensor(const StateReader& in, const std::string& name,
                                      const at::Tensor& present);
// Numbers in a row as a tensor of one dimension. `size` is that of a number in bytes.
HOLDFAST_EXPORT void put_numbers(StateWriter& out, const std::string& name, const void* numbers,
                                 std::size_t count, std::size_t size, bool floating);
// Calls `place` with the count; it returns where the numbers go.
HOLDFAST_EXPORT void get_numbers(const StateReader& in, const std::string& name, std::size_t size,
                                 bool floating, const std::function<void*(std::size_t count)>& place);
// An engine's text is whole numbers and blanks. As numbers its size stays the same from save to save.
HOLDFAST_EXPORT void put_engine(StateWriter& out, const std::string& name, const std::string& text);
HOLDFAST_EXPORT std::string get_engine(const StateReader& in, const std::string& name);
// The class's name with its template arguments, which are an engine's parameters.
HOLDFAST_EXPORT std::string class_name(const std::type_info& type);
[[noreturn]] HOLDFAST_EXPORT void refuse_size(const std::string& name, std::size_t recorded,
                                              std::size_t here);
[[noreturn]] HOLDFAST_EXPORT void refuse_text(const std::string& name);
[[noreturn]] HOLDFAST_EXPORT void refuse_keys(const std::string& name);

template <class T>
concept Number = std::is_arithmetic_v<T> && !std::same_as<T, bool> && sizeof(T) <= 8;

template <class T>
concept Streamed = requires(std::ostream& out, std::istream& in, const T& from, T& to) {
  out << from;
  in >> to;
};
template <class T>
concept Engine = std::uniform_random_bit_generator<T> && Streamed<T>;
template <class T>
concept Distribution = Streamed<T> && requires {
  typename T::param_type;
};

template <class T>
std::string streamed(const T& from) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << from;
  return text.str();
}

template <class T>
void unstreamed(const std::string& name, const std::string& from, T& to) {
  std::istringstream text(from);
  text.imbue(std::locale::classic());
  text >> to;
  if (text.fail()) refuse_text(name);
}

template <class T>
std::string number_type() {
  const std::string bits = std::to_string(sizeof(T) * 8);
  return (std::is_floating_point_v<T> ? "float" : std::is_signed_v<T> ? "int" : "uint") + bits;
}

inline std::string part(const std::string& name, std::size_t index) {
  return name + "." + std::to_string(index);
}

// How a type is stored: its name, put() and get(). get() sees the present value, which it does not change.
template <class T>
struct Form {
  static_assert(
      Engine<T> || Distribution<T>,
      "state.value() takes numbers, enums, strings, tensors, engines and distributions of <random>, "
      "and optional, pair, tuple, vector, array or map of them. For a struct, name its members: "
      "state.value(name, object, &Struct::first, …); for another type, give it save() and load()");
  static std::string type() { return class_name(typeid(T)); }
  static void put(StateWriter& out, const std::string& name, const T& value) {
    Engine<T> ? put_engine(out, name, streamed(value)) : put_text(out, name, streamed(value));
  }
  static T get(const StateReader& in, const std::string& name, const T&) {
    T value;
    unstreamed(name, Engine<T> ? get_engine(in, name) : get_text(in, name), value);
    return value;
  }
};

template <>
struct Form<bool> {
  static std::string type() { return "bool"; }
  static void put(StateWriter& out, const std::string& name, bool value) { out.put(name, value); }
  static bool get(const StateReader& in, const std::string& name, bool) { return in.get_bool(name); }
};

template <Number T>
struct Form<T> {
  using Stored = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;
  static std::string type() { return number_type<T>(); }
  static void put(StateWriter& out, const std::string& name, T value) {
    out.put(name, static_cast<Stored>(value));
  }
  static T get(const StateReader& in, const std::string& name, T) {
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(in.get_double(name));
    return static_cast<T>(in.get_int(name));
  }
};

template <class T>
requires std::is_enum_v<T>
struct Form<T> {
  using Inner = Form<std::underlying_type_t<T>>;
  static std::string type() { return "enum " + Inner::type(); }
  static void put(StateWriter& out, const std::string& name, T value) {
    Inner::put(out, name, static_cast<std::underlying_type_t<T>>(value));
  }
  static T get(const StateReader& in, const std::string& name, T) {
    return static_cast<T>(Inner::get(in, name, {}));
  }
};

template <>
struct Form<std::string> {
  static std::string type() { return "string"; }
  static void put(StateWriter& out, const std::string& name, const std::string& value) {
    put_text(out, name, value);
  }
  static std::string get(const StateReader& in, const std::string& name, const std::string&) {
    return get_text(in, name);
  }
};

template <>
struct Form<at::Tensor> {
  static std::string type() { return "tensor"; }
  static void put(StateWriter& out, const std::string& name, const at::Tensor& value) {
    put_tensor(out, name, value);
  }
  static at::Tensor get(const StateReader& in, const std::string& name, const at::Tensor& present) {
    return get_tensor(in, name, present);
  }
};

template <class T>
struct Form<std::optional<T>> {
  static std::string type() { return "optional<" + Form<T>::type() + ">"; }
  static void put(StateWriter& out, const std::string& name, const std::optional<T>& value) {
    out.put(name + ".has", value.has_value());
    if (value) Form<T>::put(out, part(name, 0), *value);
  }
  static std::optional<T> get(const StateReader& in, const std::string& name,
                              const std::optional<T>& present) {
    if (!in.get_bool(name + ".has")) return std::nullopt;
    return Form<T>::get(in, part(name, 0), present ? *present : T());
  }
};

template <class T>
struct Form<std::vector<T>> {
  static std::string type() { return "vector<" + Form<T>::type() + ">"; }
  static void put(StateWriter& out, const std::string& name, const std::vector<T>& value) {
    if constexpr (Number<T>) {
      put_numbers(out, name, value.data(), value.size(), sizeof(T), std::is_floating_point_v<T>);
    } else {
      out.put(name + ".size", static_cast<std::int64_t>(value.size()));
      for (std::size_t i = 0; i < value.size(); ++i) Form<T>::put(out, part(name, i), value[i]);
    }
  }
  static std::vector<T> get(const StateReader& in, const std::string& name, const std::vector<T>& present) {
    std::vector<T> value;
    if constexpr (Number<T>) {
      get_numbers(in, name, sizeof(T), std::is_floating_point_v<T>, [&](std::size_t count) {
        value.resize(count);
        return value.data();
      });
    } else {
      const auto count = static_cast<std::size_t>(in.get_int(name + ".size"));
      for (std::size_t i = 0; i < count; ++i)
        value.push_back(Form<T>::get(in, part(name, i), i < present.size() ? T(present[i]) : T()));
    }
    return value;
  }
};

template <class T, std::size_t N>
struct Form<std::array<T, N>> {
  static std::string type() { return "array<" + Form<T>::type() + ", " + std::to_string(N) + ">"; }
  static void put(StateWriter& out, const std::string& name, const std::array<T, N>& value) {
    if constexpr (Number<T>) {
      put_numbers(out, name, value.data(), N, sizeof(T), std::is_floating_point_v<T>);
    } else {
      for (std::size_t i = 0; i < N; ++i) Form<T>::put(out, part(name, i), value[i]);
    }
  }
  static std::array<T, N> get(const StateReader& in, const std::string& name,
                              const std::array<T, N>& present) {
    std::array<T, N> value;
    if constexpr (Number<T>) {
      get_numbers(in, name, sizeof(T), std::is_floating_point_v<T>, [&](std::size_t count) {
        if (count != N) refuse_size(name, count, N);
        return value.data();
      });
    } else {
      for (std::size_t i = 0; i < N; ++i) value[i] = Form<T>::get(in, part(name, i), present[i]);
    }
    return value;
  }
};

// Pairs and tuples, also those of references: get() returns the values.
template <template <class...> class Row, class... T>
struct RowForm {
  using Values = Row<std::remove_reference_t<T>...>;
  static std::string type() {
    std::string types;
    ((types += (types.empty() ? "" : ", ") + Form<std::remove_reference_t<T>>::type()), ...);
    return "tuple<" + types + ">";
  }
  static void put(StateWriter& out, const std::string& name, const Row<T...>& value) {
    each(std::index_sequence_for<T...>(), [&](auto index) {
      using Part = std::remove_cvref_t<std::tuple_element_t<index, Row<T...>>>;
      Form<Part>::put(out, part(name, index), std::get<index>(value));
    });
  }
  static Values get(const StateReader& in, const std::string& name, const Row<T...>& present) {
    return get(in, name, present, std::index_sequence_for<T...>());
  }

 private:
  template <std::size_t... I, class Work>
  static void each(std::index_sequence<I...>, const Work& work) {
    (work(std::integral_constant<std::size_t, I>()), ...);
  }
  template <std::size_t... I>
  static Values get(const StateReader& in, const std::string& name, const Row<T...>& present,
                    std::index_sequence<I...>) {
    return Values(Form<std::remove_reference_t<T>>::get(in, part(name, I), std::get<I>(present))...);
  }
};
template <class... T>
struct Form<std::tuple<T...>> : RowForm<std::tuple, T...> {};
template <class A, class B>
struct Form<std::pair<A, B>> : RowForm<std::pair, A, B> {};

// The keys as one row, in their order; the values as another if they are numbers, else one by one.
template <class Map>
struct MapForm {
  using Key = typename Map::key_type;
  using Value = typename Map::mapped_type;
  using Keys = Form<std::vector<Key>>;
  using Values = Form<std::vector<Value>>;
  static std::string type() { return "map<" + Form<Key>::type() + ", " + Form<Value>::type() + ">"; }
  static void put(StateWriter& out, const std::string& name, const Map& value) {
    std::vector<const typename Map::value_type*> entries;
    for (const auto& entry : value) entries.push_back(&entry);
    if constexpr (!requires { typename Map::key_compare; }) {
      static_assert(std::totally_ordered<Key>,
                    "state.value() saves an unordered_map in the order of its keys");
      std::ranges::sort(entries, {}, [](const auto* entry) -> const Key& { return entry->first; });
    }
    std::vector<Key> keys;
    for (const auto* entry : entries) keys.push_back(entry->first);
    Keys::put(out, name + ".keys", keys);
    if constexpr (Number<Value>) {
      std::vector<Value> values;
      for (const auto* entry : entries) values.push_back(entry->second);
      Values::put(out, name + ".values", values);
    } else {
      for (std::size_t i = 0; i < entries.size(); ++i)
        Form<Value>::put(out, part(name, i), entries[i]->second);
    }
  }
  static Map get(const StateReader& in, const std::string& name, const Map& present) {
    const std::vector<Key> keys = Keys::get(in, name + ".keys", {});
    std::vector<Value> values;
    if constexpr (Number<Value>) {
      values = Values::get(in, name + ".values", {});
    } else {
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto here = present.find(keys[i]);
        values.push_back(Form<Value>::get(in, part(name, i), here != present.end() ? here->second : Value()));
      }
    }
    if (values.size() != keys.size()) refuse_keys(name);
    Map value = present;  // for what it compares or hashes its keys with
    value.clear();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!value.emplace(keys[i], std::move(values[i])).second) refuse_keys(name);
    }
    return value;
  }
};
template <class Key, class Value, class... Rest>
struct Form<std::map<Key, Value, Rest...>> : MapForm<std::map<Key, Value, Rest...>> {};
template <class Key, class Value, class... Rest>
struct Form<std::unordered_map<Key, Value, Rest...>> : MapForm<std::unordered_map<Key, Value, Rest...>> {};

}  // namespace value_io

// Access to one variable.
template <class T>
ValueAccess access_to(T& variable) {
  static_assert(!std::is_const_v<T>, "a constant cannot be resumed: state.option() compares it");
  using Form = value_io::Form<T>;
  return {.type = Form::type(),
          .save = [&variable](StateWriter& out) { Form::put(out, "value", variable); },
          .read = [&variable](const StateReader& in) -> std::function<void()> {
            return [&variable, value = Form::get(in, "value", variable)]() mutable {
              variable = std::move(value);
            };
          }};
}

// Access to several variables, by std::tie().
template <class... T>
ValueAccess access_to(std::tuple<T&...> variables) {
  static_assert((!std::is_const_v<T> && ...), "a constant cannot be resumed: state.option() compares it");
  using Form = value_io::Form<std::tuple<T&...>>;
  return {.type = Form::type(),
          .save = [variables](StateWriter& out) { Form::put(out, "value", variables); },
          .read = [variables](const StateReader& in) -> std::function<void()> {
            return [variables, values = Form::get(in, "value", variables)]() mutable {
              variables = std::move(values);
            };
          }};
}

}}  // namespace holdfast::v0_2
