// What the library's messages may name. They reach users of programs that have no options of the example's
// names, so a message names the field or the function; what the example calls it may stand behind that.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

// Without comments.
std::string code_of(const std::filesystem::path& file) {
  std::string code;
  std::string line;
  std::ifstream in(file);
  while (std::getline(in, line)) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first == std::string::npos || line.compare(first, 2, "//") == 0) continue;
    code += line.substr(0, line.find("  // ")) + "\n";
  }
  return code;
}

// What stands between double quotes; neighbours are one.
std::vector<std::string> literals_in(const std::string& code) {
  std::vector<std::string> literals;
  std::size_t end = std::string::npos;  // of the last one
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (code[i] == '\'' && i + 2 < code.size() && (code[i + 1] == '\\' || code[i + 2] == '\'')) {
      i += code[i + 1] == '\\' ? 3 : 2;
      continue;
    }
    if (code[i] != '"') continue;
    const bool neighbour = end != std::string::npos && code.find_first_not_of(" \n", end) == i;
    if (!neighbour) literals.emplace_back();
    for (++i; i < code.size() && code[i] != '"'; ++i) {
      if (code[i] == '\\') ++i;
      literals.back() += code[i];
    }
    end = i + 1;
  }
  return literals;
}

bool names_a_programs_option(const std::string& literal) {
  std::size_t at = literal.find("--");
  while (at != std::string::npos && std::islower(static_cast<unsigned char>(literal[at + 2])) == 0) {
    at = literal.find("--", at + 2);
  }
  if (at == std::string::npos) return false;
  // The example, or a command or program that is named with its option.
  for (const char* named : {"in Holdfast's example", "holdfast prune --", "holdfast prune DIR --",
                            "holdfast supervise --", "cmake/bootstrap --", "aws ec2 ", "Slurm's --"}) {
    if (literal.find(named) != std::string::npos) return false;
  }
  return true;
}

TEST(Messages, NameNoOptionThatTheProgramMayNotHave) {
  const std::filesystem::path library = std::filesystem::path(HOLDFAST_SOURCE_DIR) / "lib/holdfast";
  std::size_t literals = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(library)) {
    const std::filesystem::path& file = entry.path();
    if (file.extension() != ".cc" && file.extension() != ".h") continue;
    const std::string name = file.lexically_relative(library).native();
    // They have options. The mirror runs in the program `holdfast` alone, and calls rclone.
    if (name.starts_with("cli/") || name.starts_with("mirror/") || name == "kernels/compiler.cc") continue;
    for (const std::string& literal : literals_in(code_of(file))) {
      ++literals;
      EXPECT_FALSE(names_a_programs_option(literal)) << name << ": " << literal;
    }
  }
  EXPECT_GT(literals, 1000u);
  EXPECT_TRUE(names_a_programs_option(literals_in("f(\"start \"\n  \"--allow-fresh\");").front()));
}

}  // namespace
