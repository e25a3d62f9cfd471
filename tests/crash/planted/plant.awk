# awk -f plant.awk NAME.patch SOURCE > SOURCE with the bug
#
# A patch: "# what is broken", "--- file", then hunks after "@@" as diff -u writes them. Where a hunk belongs is found by
# its text alone, which must occur exactly once; so the source may move, but not change under it unnoticed.
FNR == 1 { file++ }
file == 1 && /^(#|---|\+\+\+)/ { next }
file == 1 && /^@@/ { hunks++; next }
file == 1 {
  sign = substr($0, 1, 1)
  line = substr($0, 2) "\n"
  if (sign != "+") old[hunks] = old[hunks] line
  if (sign != "-") new[hunks] = new[hunks] line
  next
}
{ text = text $0 "\n" }
END {
  if (!hunks) fail("has no hunks")
  for (i = 1; i <= hunks; i++) {
    at = index(text, old[i])
    if (!at) fail("no longer applies, hunk " i " is not in the source:\n" old[i])
    rest = substr(text, at + length(old[i]))
    if (index(rest, old[i])) fail("is ambiguous, hunk " i " is in the source twice:\n" old[i])
    text = substr(text, 1, at - 1) new[i] rest
  }
  printf "%s", text
}
function fail(why) {
  print ARGV[1] ": the planted bug " why > "/dev/stderr"
  failed = 1
  exit 1
}
