# Runs the tests; the exit code is 1 when one fails.
. "$(dirname "$0")/../lib/count.sh"
passed=0 failed=0

check() { # NAME INPUT EXPECTED
  local got
  got=$(printf '%b' "$2" | count_words)
  if [ "$got" = "$3" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED $1: expected $3, got $got"
  fi
}

check "two words" 'one two\n' 2
check "no input" '' 0
check "a star is a word" '* *\n' 2
check "a last line without its newline" 'one\ntwo three' 3

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
