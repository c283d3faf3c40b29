# SPDX-License-Identifier: Apache-2.0
# part: of the lines of standard input those that ULLAGE_PART=K/N chooses, every N-th from the K-th on;
# all of them without it. Sourced by tests that a slice of the slow tier (slices.py) runs in parts.
part() {
    awk -v part="${ULLAGE_PART:-1/1}" 'BEGIN { split(part, of, "/") } (NR - of[1]) % of[2] == 0'
}
