#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What people mistype, and what a machine lacks: a message that says what to do, before any work is done,
# and nothing half-written.
#
# usage: tests/cli/mistakes.sh ULLAGE
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
cp "$digits" digits.onnx
mkdir folder
echo text >notes.txt
plan=("$ullage" plan digits.onnx --dim N=1 --target c)
compile=("$ullage" compile digits.onnx --dim N=1 --target c)

# words that are nearly right, where options stand that are no command's
expect 1 'there is no option --versoin \(did you mean --version\?\)' "$ullage" --versoin
expect 1 'there is no option --jsno \(did you mean --json\?\)' "$ullage" help --jsno
expect 1 'there is no option -v; see ullage --help' "$ullage" -v
expect 1 'unknown option --hlep \(did you mean --help\?\)' "$ullage" plan --hlep
expect 1 '--budget 12GiBB: expected a size' "${plan[@]}" --budget 12GiBB

# names of files
expect 1 'the name of a file is empty' "$ullage" plan ''
expect 1 '--json: the name is empty' "${plan[@]}" --json ''
expect 1 '--emit: the name is empty' "${compile[@]}" --emit ''
expect 5 '--json folder: is a folder; give a file' "${plan[@]}" --json folder
expect 5 '-o folder/: is a folder; give a file' "${compile[@]}" -o folder/
expect 5 '--emit notes.txt: is a file; give a folder' "${compile[@]}" --emit notes.txt
expect 5 '--emit none/here: there is no folder none$' "${compile[@]}" --emit none/here
expect 5 '--emit none/here/: there is no folder none$' "${compile[@]}" --emit none/here/
expect 0 'unaccounted' "${plan[@]}" --json /dev/null
expect 2 'notes.txt: no JSON \(.*\); ullage plan MODEL.onnx --json FILE writes a plan' "$ullage" report notes.txt
expect 2 'notes.txt: neither a problem, .*, nor a graph in JSON' "$ullage" solve notes.txt

# a link stays, and leads to the result: /dev/stdout of a shell that writes to a file is one
echo old >real.json
ln -s real.json link.json
expect 0 'unaccounted' "${plan[@]}" --json link.json
[ -L link.json ] && grep -q '"reserved_bytes"' real.json || fail "a link is replaced by a result"

# also one to what is not there yet, or to a descriptor, whose file may have more in it, or no name
ln -s later.json link_later.json
expect 0 'unaccounted' "${plan[@]}" --json link_later.json
[ -L link_later.json ] && [ -s later.json ] || fail "a link to no file is replaced by a result"
ln -s /proc/self/fd/1 stdout
{ echo before; "${plan[@]}" --json stdout; echo behind; } >all.txt
[ "$(sed -n '1p;$p' all.txt | xargs)" = "before behind" ] && grep -q '"reserved_bytes"' all.txt ||
    fail "--json /dev/stdout loses what else is written there"
exec 3>gone.txt
rm gone.txt
"${plan[@]}" --json stdout >&3
exec 3>&-
[ -L stdout ] || fail "a link to a descriptor whose file was removed is replaced by a result"
ln -s loop.json loop.json
expect 5 'loop.json: cannot write: Too many levels of symbolic links' "${plan[@]}" --json loop.json

# what a machine lacks
expect 5 'temporary folder: No such file or directory; set TMPDIR' env TMPDIR=/nonexistent "${compile[@]}" -o program
expect 0 'unaccounted' env -i "${plan[@]}"
expect 0 'reserves' env -i PATH="$PATH" TMPDIR="$TMPDIR" LC_ALL=C "${compile[@]}" -o program
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    somebody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    chmod 755 "$work"
else
    somebody=()
fi
chmod 555 folder
expect 5 '--json folder/x: cannot write into the folder folder: Permission denied' "${somebody[@]}" "${plan[@]}" --json folder/x
expect 5 '--emit folder: cannot write into the folder folder: Permission denied' "${somebody[@]}" "${compile[@]}" --emit folder
chmod 755 folder

# a program at a link finds its weights, of which it knows where it lies itself
mkdir apart
ln -s apart/program linked
expect 0 'reserves' "${compile[@]}" --weights file -o linked
expect 0 'float32 \[1,10\]' ./linked --random 1

# A disk with room for the program and not for its weights: neither, and what was there stays.
if unshare --mount true 2>/dev/null; then
    in_little() { unshare --mount bash -c 'mount -t tmpfs -o size=300k none folder && echo old >folder/p || exit 9
        "$@"; code=$?; ls -A folder; head -c 3 folder/p; exit $code' - "$@"; }
    expect 5 'folder/p.weights: cannot write: No space left' in_little "${compile[@]}" --weights file -o folder/p
    [ "$(grep -av error out.txt | paste -sd" ")" = "p old" ] || fail "a full disk leaves $(tr -d "\0" <out.txt | head -c 200)"
else
    echo "mistakes.sh: no mounts here: a full disk is not tried"
fi
left=$(ls -A tmp)
[ -z "$left" ] || fail "temporary files are left: $left"
exit $failed
