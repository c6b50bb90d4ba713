#!/usr/bin/env bash
# Builds the package and installs it into .venv, so that .venv/bin/headrace runs. The build folder
# (build/python) stays, so that a second build compiles only what changed.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$(cd "${VENV:-.venv}" && pwd)
export PATH=$venv/bin:$PATH
export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
# A clone elsewhere has the same objects.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

mkdir -p build
stamp=build/python/installed log=build/python.log begun=build/python.begun
made_for="$venv ${CMAKE_ARGS:-} ${CXXFLAGS:-}"
# Nothing to do if it was built so, and no file that it is made of is newer.
if [[ $(cat "$stamp" 2>/dev/null) == "$made_for" && $# == 0 ]]; then
  newer=$(find CMakeLists.txt pyproject.toml LICENSE README.md bindings cmake docs include python src \
    tools/build_python.sh "$venv/headrace-setup" \
    -newer "$stamp" -not -name '*.pyc' -not -name __pycache__ -print -quit)
  if [[ -z $newer ]] && python -c 'import headrace' 2>/dev/null; then
    echo "build: $venv/bin/headrace is up to date"
    exit
  fi
fi
rm -f "$stamp"
touch "$begun"
# .venv has the build requirements already, hence no isolation; and the rest, hence no dependencies.
# Of what pip prints only the compiler's progress is shown.
status=0
python -m pip install --verbose --disable-pip-version-check \
  --no-build-isolation --no-deps --force-reinstall "$@" . 2>&1 | tee "$log" |
  { grep --line-buffered -oE '\[[0-9]+/[0-9]+\] (Building|Linking).*' || true; } || status=$?
if ((status != 0)); then
  cat "$log"
  exit 1
fi
if [[ -d build/python && $# == 0 ]]; then
  echo "$made_for" >"$stamp"
  touch -r "$begun" "$stamp"
fi
echo "build: $venv/bin/headrace"
