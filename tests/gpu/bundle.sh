#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes a folder, or a .tar.gz of it, with the compiler, the libraries that it is linked to and the runtime's files, so
# that it runs on another Linux machine of the same processor family that has none of them:
# `DIR/ullage compile ...`. For tests/bench/gpu.sh, which compiles at full size where the GPU is.
#
# usage: tests/gpu/bundle.sh ULLAGE DIR|FILE.tar.gz
# exit: 0 ok, 1 usage, 5 it cannot be written
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ $# != 2 ] || [ ! -x "$1" ]; then
    echo "usage: tests/gpu/bundle.sh ULLAGE DIR|FILE.tar.gz" >&2
    exit 1
fi
if [[ $2 == *.tar.gz ]]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    "${BASH_SOURCE[0]}" "$1" "$work/bundle" >/dev/null
    tar -czf "$2" -C "$work/bundle" . || exit 5
    du -sh "$2" | sed 's/\t/  /'
    exit 0
fi
mkdir -p "$2/lib" || exit 5
cp "$1" "$2/ullage.program"
strip "$2/ullage.program"
cp -r "$here/../../runtime" "$2/"
# The C library itself is the other machine's.
ldd "$1" | awk '$3 ~ /^\// { print $3 }' |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libmvec)\.so' |
    while read -r library; do
        cp "$library" "$2/lib/"
    done
# Not by LD_LIBRARY_PATH, which the C compilers that it starts would take over.
cat >"$2/ullage" <<'END'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
export ULLAGE_RUNTIME="${ULLAGE_RUNTIME:-$here/runtime}"
for loader in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1; do
    [ ! -x "$loader" ] || exec "$loader" --library-path "$here/lib" "$here/ullage.program" "$@"
done
echo "ullage: no dynamic loader that this bundle knows" >&2
exit 3
END
chmod +x "$2/ullage"
du -sh "$2" | sed 's/\t/  /'
