#!/usr/bin/env bash
# Everything that CI runs, stage by stage; stops at the first that fails. `make test` calls it.
#
# Usage: tools/test.sh [STAGE ...]     all stages, or these; `lint`: those that only read the sources
#
# A stage that is run alone expects what those before it make: `package` for mypy and pytest,
# build-PRESET for ctest-PRESET, build-release for instructions.
#
# Ends with the seconds of each stage and pytest's own closing lines: the twenty slowest tests, failures.
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

lint=(ruff ruff-format tidy format package mypy clang-tidy)
all=("${lint[@]}")
for preset in release asan tsan; do all+=("build-$preset" "ctest-$preset"); done
all+=(instructions pytest)

chosen=("$@")
[[ ${#chosen[@]} -gt 0 ]] || chosen=("${all[@]}")
[[ ${chosen[*]} != lint ]] || chosen=("${lint[@]}")
for name in "${chosen[@]}"; do
  [[ " ${all[*]} " == *" $name "* ]] || {
    echo "test: no stage '$name'; there are: lint ${all[*]}" >&2
    exit 2
  }
done

stage() {
  local name=$1 begin=$SECONDS status=0
  shift
  [[ " ${chosen[*]} " == *" $name "* ]] || return 0
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

# The bindings too: dev is how clang and clang-tidy see them.
clang_tidy() {
  configure dev -D HEADRACE_PYTHON=ON -D Python_EXECUTABLE="$venv/bin/python" &&
    cmake --build build/dev --target headrace_generated &&
    python tools/run_clang_tidy.py --build build/dev --jobs "$jobs"
}

build() {
  configure "$1" && cmake --build --preset "$1" -j "$jobs"
}

mkdir -p build
# What takes a second and fails most, first.
stage ruff ruff check .
stage ruff-format ruff format --check .
stage tidy python tools/tidy.py
stage format python tools/check_format.py
stage package tools/build_python.sh
stage mypy mypy --strict
stage clang-tidy clang_tidy
for preset in release asan tsan; do
  stage "build-$preset" build "$preset"
  stage "ctest-$preset" ctest --preset "$preset"
done
stage instructions python benchmarks/instructions/instructions.py
print_summary
# A file's tests stay in one process: what they share is made once.
stage pytest pytest -W error -n "$jobs" --dist loadfile --no-loadscope-reorder --durations=20 --durations-min=1
