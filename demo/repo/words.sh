#!/usr/bin/env bash
# Counts the words of standard input.
set -eu
. "$(dirname "$0")/lib/count.sh"
count_words
