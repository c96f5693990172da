#!/usr/bin/env bash
# The runs behind results/digits.csv and docs/images/growth.svg; about 20 minutes on one core.
# Stop it whenever you like: finished runs are kept, and the one that was cut goes on.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:-runs/digits}
rivals=${RIVALS:-.venv/bin/rivals}

go() { # folder, then the words of `rivals run`
  local folder="$out/$1"
  shift
  grep -qs '"complete": true' "$folder/results.json" && return
  if [ -e "$folder/config.yaml" ]; then "$rivals" run "$@" --out "$folder" --resume
  else "$rivals" run "$@" --out "$folder"; fi
}

for benchmark in digits digits-permuted; do
  for seed in 0 1 2; do
    for method in twta random-ticket chain independent finetune joint; do
      go "$benchmark-$method-$seed" "$benchmark" --method "$method" --seed "$seed" > /dev/null
    done
    go "$benchmark-paper-$seed" "$benchmark" --preset paper --seed "$seed" > /dev/null
  done
done
go grows digits-permuted --set tasks=200 --set epochs=8 > /dev/null
go never-grows digits-permuted --set tasks=200 --set epochs=8 --set grow=never > /dev/null # ends when full
.venv/bin/python benchmarks/summarise.py "$out"/digits*/ --csv results/digits.csv
.venv/bin/python benchmarks/growth_plot.py "$out/grows" "$out/never-grows" docs/images/growth.svg
