#!/usr/bin/env bash
# Installs Debian or Ubuntu packages, and Python packages into .venv. Says first what it will
# install; installs nothing that is there; done in a moment if all is.
#
# Usage: tools/setup.sh [build|tests|checks]
#          build    what building and the demo need; the default
#          tests    that, and what `make test` needs on top
#          checks   that, and what `make check`, lint, soak and coverage need on top
#        tools/setup.sh --list build|tests|checks    only prints the Debian packages, one a line
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}

# a|b: either will do; the first that the distribution has is installed.
build_packages=(
  g++ make ccache pkg-config
  liburing-dev "libjpeg62-turbo-dev|libjpeg-turbo8-dev" libspng-dev libwebp-dev libtiff-dev
  libsndfile1-dev libzstd-dev zlib1g-dev libxxhash-dev libfmt-dev
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
)
tests_packages=(libgtest-dev libgmock-dev)
checks_packages=("clang-14|clang" "libclang-rt-14-dev|libclang-rt-dev" valgrind)

die() {
  printf 'setup: %s\n' "$@" >&2
  exit 1
}

is_installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# Prints those groups of alternatives in $@ of which none is installed.
missing_groups() {
  local group name
  for group in "$@"; do
    for name in ${group//|/ }; do
      is_installed "$name" && continue 2
    done
    echo "$group"
  done
}

# Prints one package of each group: the first that the distribution has.
chosen_packages() {
  local group name chosen
  for group in "$@"; do
    chosen=
    for name in ${group//|/ }; do
      [[ -n $(apt-cache madison "$name" 2>/dev/null) ]] && chosen=$name && break
    done
    echo "${chosen:-${group%%|*}}"
  done
}

install_packages() {
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      die "needs Debian packages, but this is not root and there is no sudo. As root, run:" \
        "  apt-get install --no-install-recommends $*" "(of names joined by | any one)"
    as_root=(sudo)
  fi
  echo "setup: installing Debian packages: $*"
  # The lists first: without them no alternative is known.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  local chosen
  mapfile -t chosen < <(chosen_packages "$@")
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${chosen[@]}"
}

# Installs the Python packages of file $1, if the environment was not made from it as it is now. The
# stamp, file $2 of the environment, holds what it was made from. One stamp a file: an environment
# for the checks serves for building, and one for building is extended.
install_requirements() {
  local file=$1 stamp=$venv/$2 wanted
  wanted=$(sha256sum <"$file")
  if [[ $(cat "$stamp" 2>/dev/null) == "$wanted" ]]; then return; fi
  echo "setup: installing into $venv ($("$venv/bin/python" --version)):" \
    "$(grep -c '^[a-zA-Z]' "$file") Python packages of $file"
  # Most files of torch are never imported: those that are get compiled then.
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile -r "$file"
  echo "$wanted" >"$stamp"
}

find_python() {
  local name
  for name in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
}

list_only=
if [[ ${1:-} == --list ]]; then
  list_only=yes
  shift
fi
purpose=${1:-build}
[[ $# -le 1 && ($purpose == build || $purpose == tests || $purpose == checks) ]] ||
  die "usage: tools/setup.sh [--list] [build|tests|checks]"
packages=("${build_packages[@]}")
[[ $purpose == build ]] || packages+=("${tests_packages[@]}")
[[ $purpose != checks ]] || packages+=("${checks_packages[@]}")

[[ -n $list_only ]] || command -v dpkg-query >/dev/null ||
  die "knows Debian and Ubuntu only; elsewhere install what 'tools/setup.sh --list $purpose' prints, then:" \
    "  python3 -m venv .venv && .venv/bin/pip install -r tools/requirements.txt" \
    "  .venv/bin/pip install -r tools/requirements-tests.txt     (for make test)" \
    "  .venv/bin/pip install -r tools/requirements-checks.txt    (for make check, lint and soak)"

python=$(find_python)
[[ -n $python ]] || packages+=(python3)
# A Python that is not the distribution's brings these along.
"${python:-python3}" -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)
"${python:-python3}" - 2>/dev/null <<'PY' || packages+=(python3-dev)
import pathlib, sys, sysconfig
sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())
PY

if [[ -n $list_only ]]; then
  printf '%s\n' "${packages[@]}"
  exit
fi

mapfile -t missing < <(missing_groups "${packages[@]}")
((${#missing[@]} == 0)) || install_packages "${missing[@]}"

python=$(find_python)
[[ -n $python ]] ||
  die "needs Python 3.11 or newer, found $("${PYTHON:-python3}" --version 2>&1): Debian 12 and Ubuntu 24.04" \
    "have one; elsewhere name yours: make setup PYTHON=/path/to/python3.11"

if [[ ! -x $venv/bin/python ]]; then
  rm -f "$venv"/headrace-setup*
  "$python" -m venv "$venv"
fi
install_requirements tools/requirements.txt headrace-setup
[[ $purpose == build ]] || install_requirements tools/requirements-tests.txt headrace-setup-tests
[[ $purpose != checks ]] || install_requirements tools/requirements-checks.txt headrace-setup-checks
