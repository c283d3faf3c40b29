#!/bin/bash
# The C compiler of run.sh's programs: what is the same in all of them, the runtime's files, it
# compiles once for each set of options, into $OPS_OUT/objects.
compiler=${OPS_CC:-cc}
[[ "$*" == *" -c ul_"* ]] || exec "$compiler" "$@"
kept=$OPS_OUT/objects/${*//[^A-Za-z0-9_.=+-]/_} object=${*: -1}
if [ ! -e "$kept" ]; then
    made=$(mktemp "$OPS_OUT/objects/made.XXXXXX")
    "$compiler" "${@:1:$#-1}" "$made" || exit $?
    mv "$made" "$kept"
fi
ln -f "$kept" "$object"
