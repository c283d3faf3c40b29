#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Rules that no compiler checks: which folder may include which, length of functions, formatting,
# where memory comes from, who names operators. The allow-list of long functions only shrinks.
#
# usage: tests/tidy/run.sh
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
failed=0
fail() { echo "FAIL: $1"; failed=1; }
# What is new counts before it is added.
files() { git ls-files --cached --others --exclude-standard "$@"; }

# folder: folders that it may include
allowed() {
    case $1 in
    base) echo base ;;
    frontend) echo frontend ir base ;;
    ir) echo ir base runtime/lib/ul_scalar.h ;;
    passes) echo passes ir planner base ;;
    planner) echo planner base ;;
    codegen) echo codegen ir planner base runtime/lib/ul_weights.h runtime/lib/ul_call.h runtime/lib/ul_dnnl_desc.h runtime/lib/ul_pack.h runtime/lib/ul_nbits.h runtime/lib/ul_winograd.h runtime/lib/ul_winograd_pack.h ;;
    report) echo report planner ir base ;;
    runtime) echo ;;
    compile) echo compile base frontend ir passes planner codegen report ;;
    cli) echo cli compile report planner ir ;;
    esac
}
for folder in base frontend ir passes planner codegen report compile runtime cli; do
    while IFS=: read -r file include; do
        target=${include%%/*}
        ok=no
        for may in $(allowed $folder); do
            { [ "$may" = "$target" ] || [ "$may" = "$include" ]; } && ok=yes
        done
        [ $ok = yes ] || fail "$file includes $include: $folder/ may not"
    done < <(grep -rhoE --with-filename '^#include "[a-z_]+/[^"]+"' $folder --include='*.[ch]' |
        sed 's/#include "\(.*\)"/\1/')
done

# What others may ask of operators is in ir/geometry.h.
grep -n '^#include "ir/ops/' $(files '*.[ch]' | grep -vE '^(ir|tests)/') &&
    fail "operators' headers are ir's alone"

# Functions over 70 lines; tables and flat switches are on the list.
long=$(files '*.c' | grep -v '^tests/' | xargs awk '
    FNR == 1 { start = 0 }
    /^[A-Za-z_].*\)[[:space:]]*\{?[[:space:]]*$/ && !/;/ { name = $0; start = FNR }
    /^}/ { if (start && FNR - start > 70) { sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
               print FILENAME ":" name }; start = 0 }' | sort)
extra=$(comm -23 <(echo "$long") <(sort tests/tidy/long_functions.txt) | sed '/^$/d')
gone=$(comm -13 <(echo "$long") <(sort tests/tidy/long_functions.txt) | sed '/^$/d')
[ -z "$extra" ] || fail "functions over 70 lines: $extra"
[ -z "$gone" ] || fail "no longer long, take them off tests/tidy/long_functions.txt: $gone"

# An operator is named by its row and by files about it: facts are flags and hooks of the row.
named=$(files '*.[ch]' | grep -vE '^(tests|ir/ops)/' | xargs grep -lE 'UL_OP_[A-Z][a-z]' | sort)
may=$(sed 's/[: ].*//' tests/tidy/names_operators.txt | sort)
extra=$(comm -23 <(echo "$named") <(echo "$may"))
gone=$(comm -13 <(echo "$named") <(echo "$may"))
[ -z "$extra" ] || fail "names an operator; is it a fact for a flag in ir/op.h? $extra"
[ -z "$gone" ] || fail "names no operator, take it off tests/tidy/names_operators.txt: $gone"
twice=$(grep -oE '1u << [0-9]+' ir/op.h | sort | uniq -d)
[ -z "$twice" ] || fail "ir/op.h has two flags of one bit: $twice"

# One name is one type in the whole tree; a file may define it once for each of two processors.
twice=$(files 'base/*.[ch]' 'frontend/*.[ch]' 'ir/*.[ch]' 'passes/*.[ch]' 'planner/*.[ch]' 'codegen/*.[ch]' \
    'compile/*.[ch]' 'report/*.[ch]' 'cli/*.[ch]' 'runtime/*' |
    xargs grep -oE '^(struct|enum|union) ul_[a-z0-9_]+ \{' | sort -u | sed 's/.* \(ul_[a-z0-9_]*\) {/\1/' | sort | uniq -d)
[ -z "$twice" ] || fail "types that are defined in two files: $twice"

# What goes into a function and what comes out is asserted: so many times for 100 functions at least.
for row in planner:15 codegen:15 passes:15 frontend:8 report:8; do
    folder=${row%:*} least=${row#*:}
    functions=$(files "$folder/*.c" | xargs grep -hc '^{$' | awk '{ n += $1 } END { print n }')
    asserts=$(files "$folder/*.c" | xargs grep -ho 'UL_ASSERT(' | wc -l)
    [ $((100 * asserts)) -ge $((least * functions)) ] ||
        fail "$folder/ has $asserts asserts in $functions functions: at least $least for 100"
done

# Memory comes from base/arena.c alone; frees of what a library allocated are no allocation.
grep -nE '\b(malloc|calloc|realloc|strdup|strndup|asprintf)\(' \
    $(files 'base/*.c' 'frontend/*.c' 'ir/*.c' 'passes/*.c' 'planner/*.c' 'codegen/*.c' \
        'report/*.c' 'compile/*.c' 'cli/*.c' | grep -v '^base/arena.c$') && fail "memory from outside base/arena.c"
grep -nE '\bexit\(' $(files 'frontend/*.c' 'ir/*.c' 'passes/*.c' 'planner/*.c' \
    'codegen/*.c' 'report/*.c' 'compile/*.c') && fail "exit() outside of cli/"
grep -nE '\b(printf|puts|putchar)\(|\bstd(out|err)\b' $(files 'compile/*.c' | grep -v process.c) && fail "compile/ prints"

if command -v clang-format >/dev/null; then
    files=$(files '*.c' '*.h' | grep -vE '^tests/(runtime|bench)/.*/(model|gen)')
    # shellcheck disable=SC2086
    bad=$(clang-format --dry-run -Werror $files 2>&1 | sed -n 's/^\([^: ]*\):[0-9].*error.*/\1/p' |
        sort -u | tr '\n' ' ')
    [ -z "$bad" ] || fail "not formatted: $bad"
else
    echo "clang-format is not installed: formatting was not checked"
fi
awk 'length($0) > 100 { print FILENAME ":" FNR ": over 100 columns"; bad = 1 } END { exit bad }' \
    $(files '*.c' '*.h') || failed=1

# No sentence of a comment or a page begins with "Of": the reader has no subject yet.
begun=$(files '*.[ch]' '*.cc' '*.cu' '*.cuh' '*.def' '*.ir' '*.js' '*.md' '*.py' '*.sh' '*.txt' |
    xargs grep -nE '(^|[^A-Za-z_])O[f]( |$)' | cut -d: -f1,2)
[ -z "$begun" ] || fail "$(echo "$begun" | wc -l) sentences begin with \"Of\": $begun"

# Each source says its licence in its first lines: what is copied into emitted folders and reports is
# 0BSD, all else Apache-2.0.
sources=$(files '*.c' '*.h' '*.cc' '*.cu' '*.cuh' '*.def' '*.css' '*.js' '*.ld' '*.py' '*.sh' \
    '*.cmake' '*CMakeLists.txt' 'cmake/*.in')
copied='^(runtime/[a-z]*/ul_|report/html/page)'
# shellcheck disable=SC2086
bare=$(grep -L 'SPDX-License-Identifier: 0BSD' $(echo "$sources" | grep -E "$copied")
    grep -L 'SPDX-License-Identifier: Apache-2.0' $(echo "$sources" | grep -vE "$copied"))
[ -z "$bare" ] || fail "no SPDX-License-Identifier as docs/licence.md has it: $bare"

# The counts in docs/models.md are those of the table of tests.
counted=$(awk -F'\t' '{ scope += $4 == "in"; passed += $7 == "pass" }
    END { print NR - 1, scope, passed }' tests/ops/tests.tsv)
said=$(tr '\n' ' ' <docs/models.md | grep -oE '[0-9]+ operator tests .* [0-9]+ are in scope .* and [0-9]+ of them pass' |
    grep -oE '^[0-9]+|[0-9]+ are in|[0-9]+ of them' | grep -oE '[0-9]+' | tr '\n' ' ')
[ "$said" = "$counted " ] ||
    fail "docs/models.md counts operator tests, those in scope and passed: '$said'; it is $counted"
exit $failed
