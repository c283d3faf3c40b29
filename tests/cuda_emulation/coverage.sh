#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Did every kernel that was emitted run? Reads what UL_EMULATE_COVERAGE was set to while a program
# of target cuda was built by tests/cuda_emulation/nvcc and run.
#
# usage: tests/cuda_emulation/coverage.sh FILE
# A kernel of a branch that the data did not take is launched and does nothing; it counts as run,
# and how many there are is said. So does one that ran in a launch with others. exit: 0 all ran, 6 some did not, 1 nothing was built
set -uo pipefail
grep -q '^built' "${1:-}" || { echo "coverage.sh: $*: nothing was built" >&2; exit 1; }
emitted=$(sed -n 's/^emitted //p' "$1" | sort -u)
ran=$(sed -n 's/^ran //p' "$1" | sort -u)
while read -r -a names; do
    grep -q "^${names[0]%:}_0\$" <<<"$ran" || continue
    for name in "${names[@]:1}"; do
        ran+=$'\n'$(grep "^${name}_[0-9]*\$" <<<"$emitted")
    done
done < <(sed -n 's/^joined //p' "$1" | sort -u)
ran=$(sort -u <<<"$ran")
skipped=$(sed -n 's/^skipped //p' "$1" | sort -u)
missing=$(comm -23 <(echo "$emitted") <(sort -u <<<"$ran
$skipped"))
if [ -n "$missing" ]; then
    echo "kernels that were emitted and never ran: ${missing//$'\n'/ }"
    exit 6
fi
idle=$(comm -23 <(echo "$skipped") <(echo "$ran") | sed '/^$/d' | wc -l)
echo "$(sed '/^$/d' <<<"$emitted" | wc -l) kernels, $idle of them in branches not taken"
