// One rank of a training that shares something with the others beside gradients: dist_shard SCENARIO.
#include <cstdio>
#include <map>

#include "dist/shard_program/as_python.h"
#include "dist/shard_program/scenarios.h"
#include "holdfast/base/last_words.h"

namespace holdfast::test { namespace {

int run(const std::string& scenario) {
  const std::map<std::string, Lines (*)(ProcessGroup&)> scenarios{
      {"python", [](ProcessGroup& group) -> Lines { return {train_as_python(group)}; }},
      {"whole", equals_whole},
      {"worlds", other_worlds},
      {"resumes", resumes},
      {"clips", clips},
      {"overflows", overflows},
      {"normalizes", normalizes}};
  if (scenario.starts_with("device")) return hangs_on_device(scenario == "device returns");
  ProcessGroup group({.start_timeout = std::chrono::minutes(5)});
  for (const std::string& line : scenarios.at(scenario)(group)) std::puts(line.c_str());
  std::fflush(stdout);
  group.leave();
  return 0;
}

}}  // namespace holdfast::test

int main(int argc, char** argv) {
  using namespace holdfast::test;
  return holdfast::run([&] { return run(argc > 1 ? argv[1] : ""); });
}
