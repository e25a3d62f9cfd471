// One small trainer for each family of LibTorch programs, each made resumable in at most 15 lines:
//
//   trainer_families FAMILY RUN_DIRECTORY [EPOCHS]
//
// Each file is a trainer as people write it, and the lines that Holdfast adds and replaces are marked:
//   code  // holdfast       an added line
//   // was: ORIGINAL        the next line replaces ORIGINAL
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "resume/trainers/trainers.h"

int main(int argc, char** argv) {
  using namespace trainers;  // NOLINT(google-build-using-namespace)
  const std::map<std::string, int (*)(long epochs, const std::string& directory)> families = {
      {"lstm", lstm},   {"gan", gan},       {"gpt", gpt},        {"ppo", ppo},
      {"lbfgs", lbfgs}, {"frozen", frozen}, {"buffers", buffers}};
  const auto family = families.find(argc > 1 ? argv[1] : "");
  if (family == families.end() || argc < 3) {
    std::fprintf(stderr, "usage: trainer_families FAMILY RUN_DIRECTORY [EPOCHS]\n");
    return 64;
  }
  return family->second(argc > 3 ? std::atol(argv[3]) : 5, argv[2]);
}
