// The command `rehearse`, and its server, are not in this program: there is no command of that name.
#include "holdfast/cli/commands.h"
#include "holdfast/cli/rehearsal/metadata_server.h"

namespace holdfast { inline namespace v0_2 {

void add_rehearse(CLI::App&, const std::vector<std::string>&, Command&) {}

std::string_view http_library_version() { return "none"; }

}}  // namespace holdfast::v0_2
