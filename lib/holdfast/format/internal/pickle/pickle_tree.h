// The dicts and lists of a pickle, and where the weights are in them.
//
// Errors: PickleRefusal, with the keys that are there. Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/format/internal/pickle/unpickler.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Keys and values in turns, of a dict or of an object of a C++ archive; nullptr for anything else.
const std::vector<const PickleValue*>* items_of(const PickleValue& value);
// nullopt: neither a text nor a number, so it can name no weight.
std::optional<std::string> key_text(const PickleValue& key);
bool is_sequence(const PickleValue& value);
// The value at a key of a dict; nullptr: there is none.
const PickleValue* find(const PickleValue& dict, std::string_view key);
std::string keys_in(const PickleValue& value);  // for messages

// `path`: a key, or keys with dots between them.
const PickleValue& at_path(const PickleValue& root, std::string_view path);
// Where trainers usually put them (torch_archive.h).
const PickleValue& the_weights(const PickleValue& root);

}}}  // namespace holdfast::v0_2::internal
