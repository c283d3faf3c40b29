#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Manual pages: there for each command, with each option of its help, and right to the programs that
# read them, as far as these are here.
#
# usage: tests/cli/manual.sh ULLAGE
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# what groff, man and mandoc say of a page; a date would be another one each day
complaints() {
    ! command -v groff >/dev/null || groff -ww -man -Tutf8 "$1" 2>&1 >/dev/null
    ! command -v mandoc >/dev/null || mandoc -Tlint -Wwarning "$1" | grep -v 'missing date'
    ! command -v man >/dev/null || LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l -Tutf8 "$1" 2>&1 >/dev/null
}
command -v groff man mandoc >/dev/null || echo "no groff, man or mandoc: how pages are read is not checked"

names=$("$ullage" help --json | sed -n 's/^    {"name": "\([a-z]*\)".*/\1/p')
[ "$(wc -w <<<"$names")" -ge 11 ] || fail "help --json names other commands: $names"
for name in '' $names; do
    # shellcheck disable=SC2086
    "$ullage" help --man $name >page.1 || fail "help --man $name"
    # shellcheck disable=SC2086
    "$ullage" help --man $name | cmp - page.1 || fail "help --man $name prints another page each time"
    said=$(complaints page.1)
    [ -z "$said" ] || fail "the page of ullage $name: $said"
    for head in NAME SYNOPSIS DESCRIPTION 'EXIT STATUS' ENVIRONMENT 'SEE ALSO'; do
        grep -q "^.SH $head\$" page.1 || fail "the page of ullage $name has no $head"
    done
    [ -n "$name" ] || continue
    sed 's/\\-/-/g; s/\\f[BIR]//g' page.1 >plain.1
    "$ullage" help "$name" | grep -oE '^  (-., )?--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+' | while read -r option; do
        [ "$option" = --help ] || grep -qE "^(-., )?$option( |\$)" plain.1 || echo "$option"
    done >missing.txt
    [ ! -s missing.txt ] || fail "the page of ullage $name lacks $(tr '\n' ' ' <missing.txt)"
    grep -qF "$("$ullage" help "$name" | sed -n '/^examples:/,$s/^      //p' | head -1)" plain.1 ||
        fail "the page of ullage $name lacks its example"
done
expect 1 'there is no command frobnicate' "$ullage" help --man frobnicate
exit $failed
