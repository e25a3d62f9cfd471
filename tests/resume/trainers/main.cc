// One small trainer for each family of LibTorch programs, each made resumable in at most 20 lines:
//
//   trainer_families FAMILY RUN_DIRECTORY [EPOCHS [LEFT_OUT…]]
//
// LEFT_OUT names parts that are not added to the state. trainer_originals is the same program, from the sources
// as they were before the port.
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
      {"lstm", lstm},
      {"gan", gan},
      {"gpt", gpt},
      {"ppo", ppo},
      {"lbfgs", lbfgs},
      {"frozen", frozen},
      {"buffers", buffers},
      {"splats", splats},
      {"dqn", dqn},
      {"unfreezing", unfreezing},
      {"two_phases", two_phases}};
  const auto family = families.find(argc > 1 ? argv[1] : "");
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (family == families.end() || argc < 3) {
    std::fprintf(stderr, "usage: trainer_families FAMILY RUN_DIRECTORY [EPOCHS [LEFT_OUT...]]\n");
    return 64;
  }
#ifdef TRAINERS_ARE_PORTED
  for (int i = 4; i < argc; ++i) holdfast::LeavingOut::names().insert(argv[i]);
#endif
  return family->second(argc > 3 ? std::atol(argv[3]) : 5, argv[2]);
}
