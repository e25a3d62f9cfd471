# cmake -Dgit=… -Dsource=… -Dmade=… -P: writes the source `made` with the commit of the repository `source`, "unknown"
# if that is not a repository of its own (an archive, or files within another project).
cmake_policy(SET CMP0053 NEW)  # @commit@ is for file(CONFIGURE) alone
set(commit unknown)
if(git)
  execute_process(COMMAND "${git}" -C "${source}" rev-parse HEAD --show-toplevel OUTPUT_VARIABLE answer ERROR_QUIET)
  string(REGEX MATCHALL "[^\n]+" answer "${answer}")
  list(LENGTH answer lines)
  if(lines EQUAL 2)
    list(GET answer 1 top)
    file(REAL_PATH "${top}" top)
    file(REAL_PATH "${source}" source)
    if(top STREQUAL source)
      list(GET answer 0 commit)
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT "${made}" CONTENT "#include \"holdfast/cli/version.h\"

namespace holdfast { inline namespace v0_2 {
const std::string_view kCommit = \"@commit@\";
}}  // namespace holdfast::v0_2
" @ONLY)
