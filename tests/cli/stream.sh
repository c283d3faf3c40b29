#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What never ends is no model: it is read up to a limit, not until the memory is full.
#
# usage: stream.sh ULLAGE
# exit: 0, 77 there is too little memory to see it, else what failed
set -uo pipefail
free_kib=$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)
[ "$free_kib" -ge $((10 << 20)) ] || { echo "skipped: less than 10 GiB are free"; exit 77; }
for model in /dev/zero -; do
    said=$("$1" plan "$model" 2>&1 </dev/zero)
    code=$?
    [ "$code" = 5 ] && grep -q 'more than 2 GiB come from it: give a file' <<<"$said" ||
        { echo "FAIL: plan $model: $code: $said"; exit 6; }
done
