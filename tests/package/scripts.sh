#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Scripts that build keep their hands off what is not theirs, and say what they do not know: in a
# root that has nothing but them, with stand-ins for what they call.
#
# usage: tests/package/scripts.sh
# exit: 0, 1 one does not
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../scripts" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() { echo "FAIL: $*"; exit 1; }

# stand_in FILE LINE...: a script of these lines
stand_in() {
    mkdir -p "$(dirname "$1")"
    printf '%s\n' '#!/bin/bash' "${@:2}" >"$1"
    chmod +x "$1"
}

mkdir "$root/scripts"
cp "$source/build_wheel.sh" "$source/demo.sh" "$root/scripts/"
for name in setup_python install_deps; do
    stand_in "$root/scripts/$name.sh" "touch '$root/called'"
done
# shellcheck disable=SC2016
for name in python auditwheel; do
    stand_in "$root/build/venv-wheel/bin/$name" 'previous=
for word; do
    case $previous in --outdir | --wheel-dir) touch "$word/ullage-1-py3-none-any.whl" ;; esac
    previous=$word
done'
done

# Only what a network that is missing does is skipped; a folder is there whole or not at all.
mkdir -p "$root/ocr/scripts" "$root/ocr/build/venv/bin"
cp "$source/fetch_ocr.sh" "$source/setup_python.sh" "$source/requirements.txt" "$root/ocr/scripts/"
touch "$root/ocr/build/venv/.ready-$(sha256sum "$source/requirements.txt" | cut -c1-16)"
# shellcheck disable=SC2016
stand_in "$root/ocr/build/venv/bin/python" 'for word; do
    [ "$previous" != --target ] || mkdir -p "$word/rapidocr_onnxruntime/models"
    previous=$word
done
echo "$SAYS"
exit $ENDS'
for case in '1 77 Retrying (Retry(total=1)) after connection broken' '1 1 ERROR: No matching distribution found' \
    '1 1 OSError: [Errno 28] No space left on device' '0 0 Successfully installed'; do
    read -r ends wanted says <<<"$case"
    code=0
    printed=$(ENDS=$ends SAYS=$says "$root/ocr/scripts/fetch_ocr.sh" 2>"$root/log") || code=$?
    [ "$code" = "$wanted" ] || fail "fetch_ocr.sh ends with $code where pip says $says: $(cat "$root/log")"
    [ "$code" != 0 ] || [ -d "$printed" ] || fail "fetch_ocr.sh printed $printed"
    [ "$code" = 0 ] || ! compgen -G "$root/ocr/build/rapidocr-*[0-9]" >/dev/null || fail "fetch_ocr.sh left half of a package"
done

mkdir "$root/mine"
touch "$root/mine/thesis.txt" "$root/mine/ullage-0-py3-none-any.whl"
printed=$("$root/scripts/build_wheel.sh" "$root/mine") || fail "build_wheel.sh: $printed"
[ "$printed" = "$root/mine/ullage-1-py3-none-any.whl" ] || fail "build_wheel.sh printed $printed"
[ -e "$root/mine/thesis.txt" ] || fail "build_wheel.sh removed what was in its folder"
[ ! -e "$root/mine/raw" ] || fail "build_wheel.sh left its folder of raw wheels"

for script in build_wheel demo; do
    rm -f "$root/called"
    code=0
    "$root/scripts/$script.sh" --nonsense >"$root/log" 2>&1 || code=$?
    [ $code = 1 ] && grep -q "$script.sh: unknown option --nonsense" "$root/log" ||
        fail "$script.sh --nonsense ends with $code: $(cat "$root/log")"
    "$root/scripts/$script.sh" --help | grep -q "^usage: scripts/$script.sh" || fail "$script.sh --help"
    [ ! -e "$root/called" ] || fail "$script.sh began before it looked at its options"
done
