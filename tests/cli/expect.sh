#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the tests of the command line share; source it with the compiler as the first argument: a
# folder of its own to work in, $digits, and what is expected of commands. A failure sets $failed.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ullage=$(realpath "$1")
digits=$here/../../models/digits/digits.onnx
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export TMPDIR=$work/tmp
mkdir tmp
failed=0
fail() { echo "FAIL: $*"; failed=1; }

# expect CODE PATTERN COMMAND...: exit code, and a pattern (grep -E) in stdout and stderr together
expect() {
    local code=$1 pattern=$2 got
    shift 2
    "$@" >out.txt 2>&1 </dev/null
    got=$?
    if [ "$got" != "$code" ] || ! grep -qE -- "$pattern" out.txt; then
        fail "$* : exit $got, expected $code and /$pattern/; printed:"
        head -5 out.txt
    fi
}
