// Completion for shells, made from the options that CLI11 knows, so that no list has to be kept by hand.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <sstream>

#include "holdfast/cli/commands.h"

namespace holdfast { inline namespace v0_2 {
namespace {

struct Choice {
  std::vector<std::string> names;  // "--color"; of a positional argument none
  std::string help;
  bool takes_value = false;
  std::vector<std::string> values;  // those of IsMember; empty: files
  bool any_text = false;            // no file: a time, a number, a name
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

// CLI11 shows the members of a set only in the type: "WHEN:{auto,always,never}".
std::vector<std::string> members_in(const std::string& type) {
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}', begin);
  if (begin == std::string::npos || end == std::string::npos) return {};
  return split(type.substr(begin + 1, end - begin - 1), ',');
}

std::vector<Choice> choices_of(const CLI::App& command) {
  std::vector<Choice> choices;
  for (const CLI::Option* option : command.get_options()) {
    Choice choice;
    choice.help = option->get_description();
    choice.takes_value = option->get_items_expected_max() > 0;
    for (const std::string& name : option->get_lnames()) choice.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) choice.names.push_back("-" + name);
    choice.values = members_in(option->get_type_name());
    const std::string type = option->get_type_name();
    // TEXT is CLI11's own word for a text or a path whose type nobody has named.
    choice.any_text = !choice.names.empty() && type.rfind("FILE", 0) != 0 && type.rfind("DIR", 0) != 0 &&
                      type.rfind("TEXT", 0) != 0;
    choices.push_back(std::move(choice));
  }
  return choices;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// What a positional argument may be; empty: files.
std::vector<std::string> words_of(const CLI::App& app, const CLI::App& command) {
  if (command.get_name() == "help") {
    std::vector<std::string> words = command_names(app);
    words.emplace_back("exit-codes");
    return words;
  }
  for (const Choice& choice : choices_of(command)) {
    if (choice.names.empty() && !choice.values.empty()) return choice.values;
  }
  return {};
}

// COMP_WORDBREAKS of bash has '=', so --color=always comes as three words. The head finds option and value
// among them.
constexpr char kBashHead[] = R"(# Completion of holdfast for bash, printed by `holdfast completion bash`.
_holdfast() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options= words= i
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 2; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then  # the words of another command
      compopt -o default
      return
    fi
  done
)";

constexpr char kBashTail[] = R"(  if [[ -n $words || $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$words $options" -- "$cur"))
  else
    compopt -o default
  fi
}
complete -F _holdfast holdfast
)";

void print_bash(const CLI::App& app) {
  std::cout << kBashHead << "  if ((COMP_CWORD == 1)); then\n    COMPREPLY=($(compgen -W \""
            << joined(command_names(app)) << " --help --version\" -- \"$cur\"))\n    return\n  fi\n"
            << "  case ${COMP_WORDS[1]} in\n";
  std::string values;
  for (const CLI::App* command : app.get_subcommands({})) {
    std::vector<std::string> options;
    for (const Choice& choice : choices_of(*command)) {
      options.insert(options.end(), choice.names.begin(), choice.names.end());
      if (!choice.takes_value || choice.names.empty()) continue;
      for (const std::string& name : choice.names) {
        // ':' offers nothing for free text. Without this case the end of the function would offer names of
        // files.
        const std::string answer =
            !choice.values.empty() ? "COMPREPLY=($(compgen -W \"" + joined(choice.values) + "\" -- \"$cur\"))"
            : choice.any_text      ? ":"
                                   : "compopt -o default";
        values += "    \"" + command->get_name() + " " + name + "\") " + answer + "; return ;;\n";
      }
    }
    std::cout << "    " << command->get_name() << ") options=\"" << joined(options) << "\" words=\""
              << joined(words_of(app, *command)) << "\" ;;\n";
  }
  std::cout << "  esac\n  case \"${COMP_WORDS[1]} $prev\" in\n" << values << "  esac\n" << kBashTail;
}

// For a quoted word of _arguments.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    // A quote ends the word, so it is closed, escaped and opened again.
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    // These mean something to _arguments.
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string zsh_values(const Choice& choice) {
  if (!choice.values.empty()) return ":value:(" + joined(choice.values) + ")";
  return choice.any_text ? ":value: " : ":file:_files";
}

// One text works in a folder of fpath, where it is the body of _holdfast, and when it is sourced. Its
// last lines tell the two apart.
void print_zsh(const CLI::App& app) {
  std::cout << "#compdef holdfast\n# Completion of holdfast for zsh, printed by `holdfast completion zsh`.\n"
               "_holdfast() {\n  local -a commands\n  commands=(\n";
  for (const CLI::App* command : app.get_subcommands({})) {
    std::cout << "    '" << command->get_name() << ':' << escaped(command->get_description()) << "'\n";
  }
  std::cout << "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
               "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n";
  for (const CLI::App* command : app.get_subcommands({})) {
    std::cout << "    " << command->get_name() << ")\n      _arguments";
    for (const Choice& choice : choices_of(*command)) {
      for (const std::string& name : choice.names) {
        // With "=", zsh accepts the value in the same word and in the next.
        const bool long_name = name.rfind("--", 0) == 0;
        std::cout << " \\\n        '" << name << (choice.takes_value && long_name ? "=" : "") << '['
                  << escaped(choice.help) << ']' << (choice.takes_value ? zsh_values(choice) : "") << "'";
      }
    }
    const auto words = words_of(app, *command);
    std::cout << " \\\n        '*:argument:" << (words.empty() ? "_files" : "(" + joined(words) + ")")
              << "' ;;\n";
  }
  std::cout << "  esac\n}\n"
               "if [[ $funcstack[1] == _holdfast ]]; then\n  _holdfast \"$@\"\nelse\n  compdef _holdfast "
               "holdfast\nfi\n";
}

}  // namespace

void add_completion(CLI::App& app, Command& chosen) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* const command = app.add_subcommand("completion", "Print the completion of options for a shell");
  command->add_option("SHELL", *shell, "the shell")->required()->check(CLI::IsMember({"bash", "zsh"}));
  command->footer(
      "An installation has put both where shells look for them.\n\nExample:\n  source <(holdfast completion "
      "bash)");
  command->callback([shell, &app, &chosen] {
    chosen = [shell, &app] {
      *shell == "bash" ? print_bash(app) : print_zsh(app);
      return 0;
    };
  });
}

}}  // namespace holdfast::v0_2
