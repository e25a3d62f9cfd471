#include <string>
#include <vector>

#include "holdfast/cli/commands.h"

int main(int argc, char** argv) {
  // The program is a function of the library, so that a fuzz target can call it.
  return holdfast::run_program(std::vector<std::string>(argv + 1, argv + argc));
}
