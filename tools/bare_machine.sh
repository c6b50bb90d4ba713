#!/usr/bin/env bash
# Runs a command where there is no compiler, no header and none of the libraries that a wheel carries:
# so a wheel that runs here needs nothing but Python. The machine outside stays as it is.
#
# Usage: HIDE="FOLDER ..." tools/bare_machine.sh COMMAND...      HIDE: more folders that shall be empty
#
# Needs a mount namespace (root, or user namespaces). Without one, PATH has only the folder of the
# command, nothing else is hidden, and a line says so.
set -euo pipefail

folders=(/usr/include /usr/local/include /usr/lib/gcc /usr/lib/llvm-*)
programs=(cc c++ gcc g++ cpp clang clang++ ld as make cmake ninja ccache pkg-config)
libraries=(
  libFLAC.so.12 libLerc.so.4 libdeflate.so.0 libjbig.so.0 libjpeg.so.62 libjpeg.so.8 libmp3lame.so.0
  libmpg123.so.0 libogg.so.0 libopus.so.0 libsndfile.so.1 libspng.so.0 libtiff.so.6 liburing.so.2
  libvorbis.so.0 libvorbisenc.so.2 libwebp.so.7 libzstd.so.1
  libcares.so.2 libgrpc.so.29 libgrpc++.so.1.51 libprotobuf.so.32 libre2.so.9  # compiled in
)

hide() {
  local each path
  for each in "${folders[@]}" ${HIDE:-}; do
    [[ ! -d $each ]] || mount -t tmpfs -o size=1m,ro none "$each"
  done
  # An empty file over each: it can be neither run nor loaded.
  for each in "${programs[@]}"; do
    while read -r path; do
      path=$(realpath "$path")
      [[ ! -s $path ]] || mount --bind /dev/null "$path"
    done < <(type -ap "$each")
  done
  for each in "${libraries[@]}"; do
    while read -r path; do
      path=$(realpath "$path")
      [[ ! -s $path ]] || mount --bind /dev/null "$path"
    done < <(ldconfig -p | awk -v name="$each" '$1 == name { print $NF }')
  done
}

if [[ ${1:-} == --inside ]]; then
  shift
  hide
  exec env -u HIDE HEADRACE_BARE=1 "$@"
fi
for namespace in "--mount" "--mount --map-root-user"; do
  # shellcheck disable=SC2086
  if unshare $namespace mount -t tmpfs none /usr/include 2>/dev/null; then
    # shellcheck disable=SC2086
    exec unshare $namespace -- "$0" --inside "$@"
  fi
done
echo "bare_machine: no mount namespace here: only PATH is without compilers, libraries are visible"
exec env -u HIDE PATH="$(dirname "$1")" "$@"
