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

if [[ ! -d build/python ]]; then
  echo "build: the first time this compiles for some minutes, and prints nothing meanwhile"
fi
# .venv has the build requirements already, hence no isolation; and the rest, hence no dependencies.
python -m pip install --quiet --disable-pip-version-check \
  --no-build-isolation --no-deps --force-reinstall "$@" .
echo "build: $venv/bin/headrace"
