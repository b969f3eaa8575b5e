# Prints how many words standard input holds. A word is a run of characters that are not blanks.
count_words() {
  local line total=0
  while IFS= read -r line; do
    set -f
    set -- $line
    set +f
    total=$((total + $#))
  done
  echo "$total"
}
