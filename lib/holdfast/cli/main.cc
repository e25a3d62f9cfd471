#include <string>
#include <vector>

#include "holdfast/cli/commands.h"

int main(int argc, char** argv) {
  return holdfast::run_program(std::vector<std::string>(argv + 1, argv + argc));
}
