#!/bin/bash
# Makes an environment of Python with torchvision and the torch that its operators need (5.5 GB), once, and prints its
# interpreter. Headrace and the packages that it needs are those of .venv.
#   $(tools/torchvision_python.sh) benchmarks/map_style/images.py
set -euo pipefail
cd "$(dirname "$0")/.."
readonly PINNED=(torch==2.14.1 torchvision==0.29.1)
folder="${XDG_CACHE_HOME:-$HOME/.cache}/headrace/envs/${PINNED[1]}-$(printf '%s' "$PWD" | sha256sum | cut -c1-8)"
if [[ ! -f $folder/made ]]; then
  rm -rf "$folder"
  .venv/bin/python -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check "${PINNED[@]}" >&2
  packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # Behind its own packages, so that of two of a name its own is found.
  .venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$packages/venv.pth"
  touch "$folder/made"
fi
echo "$folder/bin/python"
