#!/usr/bin/env bash
# Installs what building, testing and the demo need: Debian or Ubuntu packages, then .venv.
# Says first what it will install; installs nothing that is there; done in a moment if all is.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}

# a|b: either will do; the first that the distribution has is installed.
packages=(
  g++ make ccache pkg-config fio
  "clang-14|clang" "libclang-rt-14-dev|libclang-rt-dev"
  liburing-dev "libjpeg62-turbo-dev|libjpeg-turbo8-dev" libspng-dev libxxhash-dev
  libgtest-dev libgmock-dev librapidcheck-dev
)

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

find_python() {
  local name
  for name in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
}

command -v dpkg-query >/dev/null ||
  die "knows Debian and Ubuntu only; elsewhere install what CONTRIBUTING.md lists, then .venv by" \
    "  python3 -m venv .venv && .venv/bin/pip install -r tools/requirements.txt"

python=$(find_python)
[[ -n $python ]] || packages+=(python3)
# A Python that is not the distribution's brings these along.
"${python:-python3}" -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)
"${python:-python3}" - 2>/dev/null <<'PY' || packages+=(python3-dev)
import pathlib, sys, sysconfig
sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())
PY

mapfile -t missing < <(missing_groups "${packages[@]}")
((${#missing[@]} == 0)) || install_packages "${missing[@]}"

python=$(find_python)
[[ -n $python ]] ||
  die "needs Python 3.11 or newer, found $("${PYTHON:-python3}" --version 2>&1): Debian 12 and Ubuntu 24.04" \
    "have one; elsewhere name yours: make setup PYTHON=/path/to/python3.11"

# The stamp holds what the environment was made from: any change remakes what it has to.
stamp=$venv/headrace-setup
wanted=$(sha256sum <tools/requirements.txt)
if [[ ! -x $venv/bin/python || $(cat "$stamp" 2>/dev/null) != "$wanted" ]]; then
  echo "setup: installing into $venv ($("$python" --version)):" \
    "$(grep -c '^[a-zA-Z]' tools/requirements.txt) Python packages of tools/requirements.txt"
  [[ -x $venv/bin/python ]] || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    -r tools/requirements.txt
  echo "$wanted" >"$stamp"
fi
