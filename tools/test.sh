#!/usr/bin/env bash
# Everything that CI runs, stage by stage; stops at the first that fails. `make test` calls it.
#
# Usage: tools/test.sh [lint]     lint: only what reads the sources (`make lint`)
#
# Ends with the runners' own closing lines: ctest's, the seconds of each stage, pytest's.
# HEADRACE_SEED: one more seed for the tests that draw schedules; the commit's hash if not set.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$(cd "${VENV:-.venv}" && pwd)
export PATH=$venv/bin:$PATH
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

commit=$(git rev-parse --verify -q HEAD 2>/dev/null || echo 0)
export HEADRACE_SEED=${HEADRACE_SEED:-$((16#${commit:0:15}))}
echo "test: HEADRACE_SEED=$HEADRACE_SEED"

summary=()
stage() {
  local name=$1 begin=$SECONDS status=0
  shift
  printf '\n== %s: %s\n' "$name" "$*"
  "$@" || status=$?
  summary+=("$(printf '%-16s %4d s' "$name" $((SECONDS - begin)))")
  if ((status != 0)); then
    print_summary
    echo "test: stage '$name' failed (exit $status)"
    exit 1
  fi
}

print_summary() {
  printf '\n== seconds a stage\n'
  printf '%s\n' "${summary[@]}"
}

configure() {
  cmake --preset "$@" >"build/configure-$1.log" 2>&1 || {
    cat "build/configure-$1.log"
    return 1
  }
}

mkdir -p build
# What takes a second and fails most, first.
stage ruff ruff check .
stage ruff-format ruff format --check .
stage tidy python tools/tidy.py
stage format python tools/check_format.py
stage package tools/build_python.sh
stage mypy mypy --strict
# The bindings too: dev is how clang and clang-tidy see them.
stage configure-dev configure dev -D HEADRACE_PYTHON=ON -D Python_EXECUTABLE="$venv/bin/python"
stage clang-tidy python tools/run_clang_tidy.py --build build/dev --jobs "$jobs"
if [[ ${1:-} == lint ]]; then
  print_summary
  exit
fi

for preset in release asan tsan; do
  stage "configure-$preset" configure "$preset"
  stage "build-$preset" cmake --build --preset "$preset" -j "$jobs"
  stage "ctest-$preset" ctest --preset "$preset"
done

print_summary
printf '\n== pytest\n'
exec pytest -W error
