// Words of a notice file or of a metadata service, made fit for a message. Threads: pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace holdfast { inline namespace v0_2 { namespace internal {

// At most `most` bytes, then "…". Control characters become blanks. Well-formed UTF-8 stays well-formed.
std::string shortened(std::string text, std::size_t most);
// Like shortened(), and every byte that is not ASCII becomes "?".
std::string shown(std::string_view text, std::size_t most);

}}}  // namespace holdfast::v0_2::internal
