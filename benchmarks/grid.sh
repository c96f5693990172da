#!/usr/bin/env bash
# Many runs from a list: each line is a folder and the words of `rivals run`.
#   benchmarks/grid.sh benchmarks/digits.txt runs/digits 2      two at a time
# Stop it whenever you like: finished runs are kept, and those that were cut go on.
set -uo pipefail
list=$1 out=$2 jobs=${3:-1}
export RIVALS=${RIVALS:-.venv/bin/rivals} OUT=$out OMP_NUM_THREADS=1

one() {
  local folder="$OUT/$1"
  shift
  grep -qs '"complete": true' "$folder/results.json" && return
  if [ -e "$folder/config.yaml" ]; then set -- "$@" --resume; fi
  "$RIVALS" run "$@" --out "$folder" > /dev/null || echo "$folder stopped with status $?" >&2
}
export -f one
grep -v '^#' "$list" | xargs -P "$jobs" -L 1 bash -c 'one "$@"' _
