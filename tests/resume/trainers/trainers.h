// The families. Each function is the `main` of its trainer, and returns the exit code.
#pragma once

#include <string>

#ifdef TRAINERS_ARE_PORTED
#include "resume/trainers/leaving_out.h"
#endif

namespace trainers {

int lstm(long epochs, const std::string& directory);
int gan(long epochs, const std::string& directory);
int gpt(long epochs, const std::string& directory);
int ppo(long updates, const std::string& directory);
int lbfgs(long steps, const std::string& directory);
int frozen(long epochs, const std::string& directory);
int buffers(long steps, const std::string& directory);
int splats(long steps, const std::string& directory);
int dqn(long updates, const std::string& directory);
int unfreezing(long epochs, const std::string& directory);
int two_phases(long steps, const std::string& directory);

}  // namespace trainers
