#!/usr/bin/env bash
# The long versions of the tests that draw moments, schedules or combinations: hours. `make soak`
# calls it; it expects a built package.
#
# Usage: tools/soak.sh [STAGE ...]     all stages, or these
#
# A stage that fails does not stop the others; the last lines say which did. Each prints its seeds.
# HEADRACE_SEED: the first of them; the commit's hash if not set.
# HEADRACE_ENDS: seeds for each of the 48 cells of `ends`; 200 if not set, which is 9,600 runs.
# HEADRACE_KILLS: kills of `kills`; 200 if not set.
# HEADRACE_NODE_KILLS: kills and stops of `nodes`; 30 if not set, and two less for each order whose
#   nodes send each other samples. Then its jobs that go on with another
#   number of nodes: 600, from every step.
# HEADRACE_RAY_KILLS: raylets that `ray` kills; 30 if not set.
# HEADRACE_ROUNDS: rounds of `again`, tools/repeat_tests.py; 50 if not set.
# HEADRACE_CELLS: cells of `matrix`, drawn from all 207,360; all if not set.
#
# A new stage is a line of STAGES: its name, and the test files that HEADRACE_SOAK=1 makes long.
# `again` has none: it repeats tests as they are.
set -uo pipefail
cd "$(dirname "$0")/.."
venv=$(cd "${VENV:-.venv}" && pwd)
export PATH=$venv/bin:$PATH

STAGES=(
  "ends tests/python/ends"
  "kills tests/python/test_node_kills.py"
  "nodes tests/python/nodes/test_nodes_torchrun.py tests/python/nodes/test_restore.py"
  "matrix tests/python/test_matrix.py tests/python/torch_loader/test_dataloader_matrix.py"
  "ray tests/python/on_ray/test_ray.py"
  "guides tests/python/guides/test_guides.py"
  "damage tests/python/formats"
  "again"
)

commit=$(git rev-parse --verify -q HEAD 2>/dev/null || echo 0)
export HEADRACE_SEED=${HEADRACE_SEED:-$((16#${commit:0:15}))}
export HEADRACE_KILLS=${HEADRACE_KILLS:-200}
export HEADRACE_NODE_KILLS=${HEADRACE_NODE_KILLS:-30}
export HEADRACE_RAY_KILLS=${HEADRACE_RAY_KILLS:-30}
export HEADRACE_SOAK=1
echo "soak: HEADRACE_SEED=$HEADRACE_SEED"

names=()
for line in "${STAGES[@]}"; do names+=("${line%% *}"); done
for wanted in "$@"; do
  if [[ " ${names[*]} " != *" $wanted "* ]]; then
    echo "soak: no stage '$wanted'; there are: ${names[*]}" >&2
    exit 2
  fi
done

summary=()
failed=0
for line in "${STAGES[@]}"; do
  read -r -a files <<<"$line"
  name=${files[0]}
  if (($# > 0)) && [[ " $* " != *" $name "* ]]; then continue; fi
  begin=$SECONDS
  status=passed
  printf '\n== %s\n' "$name"
  run=(pytest -W error "${files[@]:1}")
  if [[ $name == again ]]; then
    run=(env -u HEADRACE_SOAK python tools/repeat_tests.py "${HEADRACE_ROUNDS:-50}")
  fi
  if ! "${run[@]}"; then
    status=FAILED
    failed=1
  fi
  summary+=("$(printf '%-10s %6d s  %s' "$name" $((SECONDS - begin)) "$status")")
done
printf '\n== seconds a stage, from seed %s\n' "$HEADRACE_SEED"
printf '%s\n' "${summary[@]}"
exit "$failed"
