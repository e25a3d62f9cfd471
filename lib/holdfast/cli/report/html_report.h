// A run's report as one page of HTML: figures, curves, the attempts' times, notices. No script, no font and
// nothing from a network; light or dark as the reader's system is.
//
// Errors: IoError if a ledger cannot be read. Texts from ledgers are escaped. Threads: pure.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "holdfast/io/file_system.h"
#include "holdfast/ledger/goodput.h"

namespace holdfast { inline namespace v0_2 {

// `account` must be computed from `lives`. `name`: of the run.
std::string html_report(const std::string& name, Directory& run_directory,
                        const std::vector<LedgerLife>& lives, const RunAccount& account);

// Of the runs in the folders of `root`: the table of `fleet_report(root, …)`, and their curves of the loss
// and of each metric, one run over another.
std::string html_fleet_report(const std::filesystem::path& root, const nlohmann::ordered_json& report);

}}  // namespace holdfast::v0_2
