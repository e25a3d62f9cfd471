# Reads cmake/layers.cmake and cmake/public_headers.cmake, then sources under lib/holdfast; prints one line a violation:
# RULE FILE:LINE what.
# awk -f check.awk cmake/layers.cmake cmake/public_headers.cmake lib/holdfast/…/*.h lib/holdfast/…/*.cc

function report(rule, what) { print rule " " FILENAME ":" FNR ": " what }

FNR == 1 {
  in_table = FILENAME ~ /layers\.cmake$/
  in_list = FILENAME ~ /public_headers\.cmake$/
  header = FILENAME ~ /\.h$/
  split(FILENAME, part, "lib/holdfast/")
  module = substr(part[2], 1, index(part[2], "/") - 1)
  depth = 0
  one_include = part[2] == "holdfast.h"  # of a training loop: it stands above all modules
  if (!in_table && !in_list && !one_include && !(module in known)) report("table", "module '" module "' is not in cmake/layers.cmake")
  if (header && $0 !~ /^\/\/ ?[^ \/]/) report("contract", "a header opens with its contract, a // comment in line 1")
}

in_table {
  if (match($0, /^set\(HOLDFAST_LAYER_[a-z]+/)) {
    line = $0
    gsub(/^set\(HOLDFAST_LAYER_|\)$/, "", line)
    n = split(line, word, " ")
    known[word[1]] = 1
    for (i = 2; i <= n; i++) allowed[word[1], word[i]] = 1
  } else if (/^set\(HOLDFAST_TORCH_MODULES /) {
    line = $0
    gsub(/^set\(HOLDFAST_TORCH_MODULES |\)$/, "", line)
    n = split(line, word, " ")
    for (i = 1; i <= n; i++) torch[word[i]] = 1
  }
  next
}

in_list {
  line = $0
  if (match(line, /^set\(HOLDFAST_PUBLIC_[a-z]+/)) {
    listed = substr(line, 21, RLENGTH - 20)
    line = substr(line, RLENGTH + 1)
  }
  if (line ~ /^#/) next
  gsub(/\)$/, "", line)
  n = split(line, word, " ")
  for (i = 1; i <= n; i++) public["holdfast/" listed "/" word[i] ".h"] = 1
  next
}

/^[ \t]*#[ \t]*include/ {
  name = $0
  sub(/^[ \t]*#[ \t]*include[ \t]*/, "", name)
  quoted = name ~ /^"/
  name = substr(name, 2)
  sub(/[">].*/, "", name)
  if (name ~ /^holdfast\//) {
    split(name, dir, "/")
    if (!one_include && dir[2] != module && !((module, dir[2]) in allowed)) report("layer", "'" module "' may not include '" name "'")
    if (dir[2] != module && dir[3] == "internal") report("internal", "'" name "' is private to '" dir[2] "'")
    if ((one_include || "holdfast/" part[2] in public) && !(name in public)) {
      report("public", "'" name "' is not installed: not in cmake/public_headers.cmake")
    }
  } else if (quoted) {
    report("quoted", "'" name "': own headers are included as \"holdfast/<module>/….h\", others in <>")
  }
  if (name ~ /^(torch|ATen|c10|caffe2)\// && !one_include && !(module in torch)) report("torch-free", "'" module "' may not see LibTorch: '" name "'")
  if (header && name ~ /^torch\/(torch|all|extension)\.h$/) report("torch.h", "'" name "' in a library header: include what is used")
  if (header && name ~ /^(nlohmann\/json\.hpp|CLI\/.*|httplib\.h|regex|iostream|ATen\/(ATen|Functions)\.h|torch\/(nn|optim|data|types)\.h)$/) {
    report("heavy", "'" name "' in a header: every file that includes it pays; declare (json_fwd.hpp), or include a part of it")
  }
  if (name ~ /^(spdlog|fmt)\//) report("formatter", "'" name "': a program may bring it in another version; base/log.h formats")
  if (name ~ /^hdf5/ && module != "format") report("hdf5", "only 'format' may include '" name "'")
}

# Namespaces, and the types that stand in them: two of one name are one to the linker, which joins their functions.
/^namespace .*[{]/ {
  line = $0
  sub(/ *\/\/.*/, "", line)
  n = split(line, word, /[{]/)
  for (i = 1; i < n; i++) {
    gsub(/inline|namespace| /, "", word[i])
    scope[++depth] = word[i] == "" ? "-" : word[i]
  }
}
/^[}]+  \/\/ namespace/ { match($0, /^[}]+/); depth -= RLENGTH }
/^(class|struct|enum class|enum|union) [^;]*$|^(class|struct|enum class|enum|union) .*[{]/ {
  line = $0
  gsub(/^(class|struct|enum class|enum|union) |HOLDFAST_[A-Z_]+(\("[a-z]*"\))? /, "", line)
  place = ""
  for (i = 1; i <= depth; i++) place = place scope[i] "::"
  if (match(line, /^[A-Za-z_0-9]+/) && substr(line, RLENGTH + 1) !~ /^(<|::)/ && place !~ /-/) {
    name = place substr(line, 1, RLENGTH)
    if (name in defined) report("twice", name " is a type in " defined[name] ", too")
    else defined[name] = FILENAME
  }
}

/^#pragma once$/ { once[FILENAME] = 1 }
header && !(FILENAME in headers) { headers[FILENAME] = 1 }

END {
  for (name in public) if (!(("lib/" name) in headers)) print "public cmake/public_headers.cmake:1: there is no lib/" name
  for (file in headers) if (!(file in once)) print "once " file ":1: no #pragma once"
}
