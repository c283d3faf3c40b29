#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes Debian's package of a build tree, looks at it, and tries it on a bare Debian.
#
# usage: tests/package/deb.sh BUILD_DIR
# exit: 0, 1 something is wrong with the package, 77 where dpkg or a bare root cannot be had
set -euo pipefail
build=$(realpath "$1")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
fail() { echo "FAIL: $*"; exit 1; }

for tool in dpkg-shlibdeps cpack gzip; do
    command -v $tool >/dev/null || { echo "deb.sh: skipped: no $tool here"; exit 77; }
done
folder=$build/package/deb
rm -rf "$folder"
mkdir -p "$folder"
(cd "$folder" && cpack -G DEB -B "$folder" --config "$build/CPackConfig.cmake" >cpack.log) ||
    { cat "$folder/cpack.log"; fail cpack; }
deb=$(echo "$folder"/ullage_*.deb)
for wanted in libc6 libdnnl libglpk libgomp libjansson libprotobuf-c libssl; do
    dpkg-deb -f "$deb" Depends | grep -q "$wanted" || fail "it does not depend on $wanted"
done
dpkg-deb -f "$deb" Recommends | grep -q 'gcc.*make.*libdnnl-dev' || fail "what compiling needs is not recommended"
dpkg-deb -c "$deb" >"$folder/files.txt"
for wanted in bin/ullage share/man/man1/ullage-plan.1.gz share/bash-completion/completions/ullage \
    share/zsh/vendor-completions/_ullage share/doc/ullage/copyright share/doc/ullage/changelog.gz \
    share/doc/ullage/changelog.Debian.gz lib/ullage/libul_runtime.a share/ullage/runtime/lib/ul_model.h; do
    grep -q " ./usr/$wanted\$" "$folder/files.txt" || fail "no $wanted"
done
grep -qvE ' root/root ' "$folder/files.txt" && fail "a file is not root's"
grep -qE '^.{5}w|^.{8}w' "$folder/files.txt" && fail "others may write a file"
dpkg-deb --fsys-tarfile "$deb" | tar -xO ./usr/share/doc/ullage/copyright >"$folder/copyright"
grep -q '^License: Apache-2.0 and GPL-3+' "$folder/copyright" || fail "it does not say what GLPK asks for"
if command -v lintian >/dev/null; then
    lintian --fail-on error,warning "$deb" || fail lintian
fi
"$root/tests/bare/run.sh" --deb "$deb"
