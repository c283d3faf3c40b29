#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The command line as a user meets it: help, exit codes, messages, standard streams, and that a
# failure leaves nothing half-written.
#
# usage: tests/cli/run.sh ULLAGE
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
default=cpu # the target where none is named

# what runs the C compiler: the programs run once, on nothing much
compile() { "$ullage" compile "$@" --cflags -O0; }

# help and usage
expect 0 'usage: ullage COMMAND' "$ullage" --help
expect 0 '^ullage [0-9]+\.[0-9]+\.[0-9]+( \(commit [0-9a-f]{12}\))?$' "$ullage" --version
expect 1 'usage: ullage COMMAND' "$ullage"
expect 1 'no command "?frobnicate' "$ullage" frobnicate
for command in compile plan check verify inspect export pack; do
    expect 0 "usage: ullage $command" "$ullage" $command --help
done
expect 0 'usage: ullage pack' "$ullage" help pack
expect 0 'usage: ullage plan' "$ullage" plan -h
expect 0 'usage: ullage COMMAND' "$ullage" -h
expect 0 'usage: ullage COMMAND' "$ullage" help help
expect 1 'no command frobnicate' "$ullage" help frobnicate
expect 0 '"name": "budget", "kind": "size", "argument": "SIZE"' "$ullage" help --json
# what is meant by a word that nearly is one; nothing where none is near
expect 1 'no command complie \(did you mean compile\?\); see ullage --help$' "$ullage" complie
expect 1 'no command profle \(did you mean profile\?\)' "$ullage" help profle
expect 1 'unknown option --bugdet \(did you mean --budget\?\)' "$ullage" plan --bugdet 64M
expect 1 'unknown option --budjet=64M \(did you mean --budget\?\)' "$ullage" plan --budjet=64M
expect 1 'unknown option --frobnicate; see' "$ullage" plan --frobnicate
expect 1 'expected best, direct or winograd \(did you mean winograd\?\)' "$ullage" plan x --conv winigrad
expect 1 'expected .* or ilp \(did you mean greedy\?\)' "$ullage" plan x --order gredy
expect 3 'c, cpu or cuda \(did you mean cuda\?\)' "$ullage" plan "$digits" --target cudda
expect 1 'there is no pass "fues" \(did you mean fuse\?\); there are' \
    "$ullage" plan "$digits" --dim N=1 --stop-after fues
# help: by groups, in 80 columns, of every command by either way
for command in '' compile plan check verify inspect export pack solve profile; do
    "$ullage" help $command >help.txt || fail "help $command"
    # shellcheck disable=SC2086
    "$ullage" $command --help | cmp - help.txt || fail "$command --help is another text than help $command"
    awk 'length > 80 { exit 1 }' help.txt || fail "help $command is wider than 80 columns"
done
expect 0 '^memory:$' "$ullage" help plan
expect 0 '^  plan  ' "$ullage" help
expect 0 'write the result as JSON' "$ullage" inspect --help
expect 0 'test_data_set_' "$ullage" verify --help
expect 0 'best \(the default\)' "$ullage" plan --help
expect 1 'order : expected' "$ullage" plan "$digits" --order ''
expect 1 'unknown option --frobnicate' "$ullage" plan --frobnicate
expect 1 'option --dim needs a value' "$ullage" plan --dim
expect 1 'give one model' "$ullage" plan
expect 1 'give one model' "$ullage" compile "$digits"
expect 1 'budget 12parsecs: expected a size' "$ullage" plan "$digits" --budget 12parsecs
expect 1 'power of two' "$ullage" plan "$digits" --dim N=1 --align 3
expect 1 'power of two from 8' "$ullage" plan "$digits" --dim N=1 --align 4
expect 0 'needs' "$ullage" plan "$digits" --dim N=1 --align 8
expect 1 'expected best, file, greedy' "$ullage" plan "$digits" --order alphabetical
expect 1 'NAME=N' "$ullage" plan "$digits" --dim N
expect 1 'no pass' "$ullage" plan "$digits" --dim N=1 --no-pass frobnicate
expect 3 'target' "$ullage" plan "$digits" --dim N=1 --target abacus

# a budget that bounds a part of a caller's process says so, and what it leaves out
expect 0 'budget bounds buffer, library and stacks, together .* bytes: code, read-only weights of ' \
    compile "$digits" --dim N=1 --target c --weights rom --budget 1MiB -o rom
expect 0 'budget bounds buffer, library and stacks, together .* bytes: code, and what' \
    compile "$digits" --dim N=1 --target c --budget 1MiB --emit part
"$ullage" compile "$digits" --dim N=1 --target c --budget 4MiB --cflags -O0 -o whole 2>out.txt
! grep -q 'budget bounds' out.txt || fail "a whole process: $(cat out.txt)"

# the same bytes and nothing else on standard output, whatever tunes malloc, oneDNN and OpenMP
"$ullage" plan "$digits" --dim N=2 --threads 2 --json - >settled.json || fail "no plan"
for variable in MALLOC_ARENA_MAX=1 GLIBC_TUNABLES=glibc.malloc.tcache_count=0 DNNL_MAX_CPU_ISA=SSE41 \
    DNNL_VERBOSE=1 OMP_THREAD_LIMIT=1; do
    env $variable "$ullage" plan "$digits" --dim N=2 --threads 2 --json - | cmp -s - settled.json ||
        fail "another plan with $variable"
done
# a search has threads sleep; what ullage runs then waits as it likes
printf '#!/bin/sh\necho "${GOMP_SPINCOUNT-none}" >>%s/waits.txt\nexec cc "$@"\n' "$PWD" >waits.sh
chmod +x waits.sh
"$ullage" compile "$digits" --dim N=1 --target $default --budget 8MiB --cc "$PWD/waits.sh" \
    --cflags -O0 -o waits >/dev/null || fail "no program with another compiler"
[ "$(sort -u waits.txt)" = none ] || fail "GOMP_SPINCOUNT for compilers: $(sort -u waits.txt)"

# targets, and the machine that a plan is for
expect 0 "\(target $default\): process" "$ullage" plan "$digits" --dim N=1
expect 0 '\(target cpu\): process' "$ullage" plan "$digits" --dim N=1 --target cpu
expect 3 'expected c, cpu or cuda' "$ullage" compile "$digits" --dim N=1 --target C -o program
for count in 0 -1 1025 99999999999999999999 two 2x 1.5 ''; do
    expect 1 "threads $count: expected a number from 1 to 1024" \
        "$ullage" plan "$digits" --dim N=1 --target cpu --threads "$count"
done
for count in 1 3; do
    "$ullage" plan "$digits" --dim N=1 --target cpu --threads $count --json on$count.json >/dev/null
    grep -q "\[\"threads\", \"$count\"\]" on$count.json ||
        { echo "FAIL: the plan does not name its $count threads"; failed=1; }
    expect 0 '^ok: ' "$ullage" check "$digits" on$count.json
    expect 0 'reserves' compile "$digits" --plan on$count.json -o planned
    expect 0 '^y  float32' ./planned --random 1 --print
done
"$ullage" plan "$digits" --dim N=1 --target cpu --threads 3 --json again.json >/dev/null
cmp on3.json again.json || { echo "FAIL: two plans for three threads differ"; failed=1; }
# a program for a named machine is compiled for that one, by what its plan says too
for machine in "sse41 x86-64 -msse4.1" "avx2 x86-64-v3"; do
    read -r isa march <<<"$machine"
    "$ullage" plan "$digits" --dim N=1 --target cpu --isa $isa --json isa.json >/dev/null
    [ $? = 3 ] && continue # not on this one
    expect 0 'reserves' compile "$digits" --dim N=1 --isa $isa --emit isa -o planned
    expect 0 '^y  float32' ./planned --random 1 --print
    expect 0 'reserves' "$ullage" compile "$digits" --plan isa.json --emit again
    for folder in isa again; do
        grep -qx -e "MARCH = -march=$march" $folder/Makefile ||
            { echo "FAIL: $isa: $(grep '^MARCH' $folder/Makefile)"; failed=1; }
    done
done
"$ullage" compile "$digits" --dim N=1 --isa avx2 --march none --emit isa >/dev/null 2>&1
grep -qx 'MARCH = ' isa/Makefile || { echo "FAIL: --march none beside --isa"; failed=1; }
# target c has no use for a machine, and words that mean nothing are refused
for option in '--threads 3' '--isa avx2' '--conv direct'; do
    # shellcheck disable=SC2086
    expect 1 "^ullage: error: ${option%% *} is for target cpu, and this is target c; leave it out, or" \
        "$ullage" plan missing.onnx --target c $option
done
expect 1 'isa "abacus": expected one of sse41' "$ullage" plan "$digits" --dim N=1 --isa abacus
expect 1 'conv fast: expected best, direct or winograd' "$ullage" plan "$digits" --dim N=1 --conv fast
# 16 bits in memory: the plan says so, and it is for them alone
expect 1 '^ullage: error: --precision fp8: expected fp32, fp16, bf16 or amp-fp16' "$ullage" plan "$digits" --dim N=1 \
    --precision fp8
for precision in fp16 bf16; do
    for target in cpu c; do
        expect 0 "would be [0-9.]+ KiB = [0-9]+ bytes more in f32" "$ullage" plan "$digits" --dim N=1 --target $target \
            --precision $precision --json $precision.json
        grep -qF "[\"precision\", \"$precision\"]" $precision.json ||
            { echo "FAIL: the plan does not name $precision"; failed=1; }
        expect 0 '^ok: ' "$ullage" check "$digits" $precision.json
    done
done
expect 0 'reserves' compile "$digits" --plan bf16.json -o halves.out
expect 0 '^precision: +f32 stored as bf16$' ./halves.out --version
# a result on standard output stands there alone, whatever a library prints there
expect 0 'calls of oneDNN' compile "$digits" --dim N=1 --target cpu -o spoken.out
./spoken.out --random 1 --output y=quiet.npy || fail 'spoken.out'
expect 0 '^onednn_verbose,' env DNNL_VERBOSE=1 ./spoken.out --random 1 --output y=loud.npy
DNNL_VERBOSE=1 ./spoken.out --random 1 --output y=- >loud.npy 2>words.txt
cmp quiet.npy loud.npy && grep -q '^onednn_verbose,' words.txt ||
    { echo "FAIL: what oneDNN says stands in a result"; failed=1; }
expect 0 '^precision f32 stored as bf16$' ./halves.out --memory
expect 0 '^precision: +of the model$' ./planned --version
expect 6 'was made with .*--precision bf16' "$ullage" compile "$digits" --plan bf16.json \
    --precision fp32 -o halves.out
expect 6 'was made with .*--precision bf16' "$ullage" compile "$digits" --plan bf16.json \
    --precision fp16 -o halves.out

# 3x3 convolutions by Winograd's method: never, while weights grow by a tenth at most, all of stride 1
# chosen CONV: how many steps run so, and the bytes of weights
chosen() {
    "$ullage" plan "$digits" --dim N=1 --target cpu --conv "$1" --json conv.json >/dev/null
    echo "$(grep -o '"ullage winograd_2x3"' conv.json | wc -l)" \
        "$(sed -n 's/.*"weights": \([0-9]*\).*/\1/p' conv.json | head -1)"
}
read -r none plain <<<"$(chosen direct)"
read -r some larger <<<"$(chosen best)"
read -r all largest <<<"$(chosen winograd)"
if [ "$none" != 0 ] || [ "$all" -lt 5 ] || [ "$some" -gt "$all" ] || [ "$largest" -le "$plain" ] ||
    [ "$larger" -gt $((plain + plain / 10)) ]; then
    echo "FAIL: --conv: steps $none, $some, $all; weights $plain, $larger, $largest"
    failed=1
fi
# a machine without a name, as plans of one have it, is not this one, or is
"$ullage" plan "$digits" --dim N=1 --target cpu --isa any >any.txt 2>&1
case $? in
    0) ;;
    3) grep -q 'isa any: this machine serves' any.txt || { echo "FAIL: --isa any"; failed=1; } ;;
    *) echo "FAIL: --isa any is no usage error"; failed=1 ;;
esac
sed 's/\["threads", "3"\]/["threads", "lots"]/' on3.json >odd.json
expect 2 'odd.json: in its options: --threads lots' "$ullage" check "$digits" odd.json

# models that cannot be
expect 5 'missing.onnx: cannot open' "$ullage" plan missing.onnx
expect 5 'is a directory' "$ullage" plan .
echo 'not a model' >text.onnx
expect 2 'text.onnx' "$ullage" plan text.onnx
: >empty.onnx
expect 2 'empty.onnx' "$ullage" plan empty.onnx
head -c 5000 "$digits" >cut.onnx
expect 2 'cut.onnx' "$ullage" plan cut.onnx
expect 1 'dim N=SIZE' "$ullage" plan "$digits"
expect 1 'given twice, with the sizes 4 and 5' "$ullage" plan "$digits" --dim N=4 --dim N=5
expect 0 'needs' "$ullage" plan "$digits" --dim N=4 --dim N=4
expect 1 'no such' "$ullage" plan "$digits" --dim M=3 --dim N=1

# standard streams: a model from stdin, a plan to stdout and nothing else there
"$ullage" plan "$digits" --dim N=1 --json plan.json >/dev/null || failed=1
"$ullage" plan - --dim N=1 --json - <"$digits" >stdout.json 2>/dev/null
sed 's/"model": "-"/"model": "digits.onnx"/' stdout.json | cmp - plan.json ||
    { echo "FAIL: --json - does not print the plan, and it alone"; failed=1; }

# the problem that a plan solves, as text; standard output has that alone
"$ullage" plan "$digits" --dim N=1 --print-problem problem.txt --json with.json >/dev/null || failed=1
cmp plan.json with.json || fail "--print-problem changed the plan"
grep -q '^problem 1$' problem.txt || fail "--print-problem: $(head -1 problem.txt)"
"$ullage" plan "$digits" --dim N=1 --print-problem - 2>/dev/null | cmp - problem.txt || fail "--print-problem -"
# under a budget, that of the program that was chosen, also on exit 4
for budget in 36000 1000; do
    "$ullage" plan "$digits" --dim N=1 --budget $budget --print-problem again.txt --json again.json >/dev/null 2>&1
    expect 0 '^ok: ' "$ullage" check again.txt again.json
done
expect 0 '^reserved ' "$ullage" solve problem.txt --align 128 --pack greedy
# comments and blank lines in front of problems and plans in text
(printf '# of digits\n\n  # planned by hand\n  '; cat problem.txt) >noted.txt
expect 0 '^reserved ' "$ullage" solve noted.txt -o noted.plan
(printf '\n# kept\n'; cat noted.plan) >noted.txt.plan
expect 0 . "$ullage" check noted.txt noted.txt.plan
expect 1 "nothing of a graph is" "$ullage" solve "$digits" --pack greedy
expect 1 'print-problem ./mine.onnx would destroy' sh -c 'cp "$2" mine.onnx; "$1" plan mine.onnx --print-problem ./mine.onnx' - "$ullage" "$digits"
expect 1 'unknown option --print-problem' "$ullage" compile "$digits" --print-problem x

# what is not in the buffer
expect 0 '^    of it read-only weights  +[0-9.]+ +[1-9][0-9]*$' "$ullage" plan "$digits" --dim N=1 --target c --weights rom
expect 0 '^ *reserved ' "$ullage" plan "$digits" --dim N=1 --target c --weights rom --quantize 'int8:*'
grep -A1 'at the peak' out.txt | grep -q 'of it' && fail "types of weights without a row that they are of"
expect 0 '^Beside the weights' "$ullage" plan "$digits" --dim N=1 --target c --io caller --keep-inputs
grep -q '  x   *steps' out.txt && fail "what lives at the peak of the buffer names a buffer of the caller's"
# budgets
expect 4 'smallest budget known to work' "$ullage" plan "$digits" --dim N=1 --budget 1000
bytes=$(sed -n 's/^The smallest budget known to work is .* = \([0-9]*\) bytes; .*/\1/p' out.txt)
for word in 'peak is at step' 'proven' 'scratch$' '--precision bf16, --weights rom and --io caller'; do
    grep -q -- "$word" out.txt || { echo "FAIL: no '$word' where nothing fits"; failed=1; }
done
expect 0 'fits the budget' "$ullage" plan "$digits" --dim N=1 --budget "$bytes"
expect 0 '"cost_bound": [0-9]' "$ullage" plan "$digits" --dim N=1 --budget "$bytes" --json -
expect 4 '--micro-batches, --offload and --io caller make it smaller' "$ullage" compile "$digits" --dim N=8 \
    --train --train-mode --output /fc/Gemm_output_0 --budget 200KiB --budget-of arena -o program
grep -q 'Nothing else took' out.txt && fail 'a method that nobody named is said to find nothing'
# what was taken already, and a bound that says nothing, are not said
expect 4 '^A smaller batch or shape makes it smaller\.$' "$ullage" plan "$digits" --dim N=1 --target c \
    --weights rom --io caller --precision bf16 --budget-of arena --budget 4KiB
grep -Eq '(below|beside) 0 bytes' out.txt && fail 'a bound of nothing'
# a method of recomputation that is named is asked, and never replaced
for method in greedy search ilp; do
    expect 0 "\"remat\": \"$method: each step runs once\"" \
        "$ullage" plan "$digits" --isa avx2 --dim N=8 --budget-of arena --budget 170000 --remat $method --json -
done
expect 4 'remat chain: its graph is no chain' \
    "$ullage" plan "$digits" --target c --dim N=64 --budget-of arena --budget 300000 --remat chain --json chain.json
grep -q '"remat": "chain"' chain.json && grep -q '"fits": false' chain.json || fail 'chain.json'
# nor is an order or a packing that is named
for method in greedy dfs beam; do
    expect 0 "\"order\": \"$method[:\"]" "$ullage" plan "$digits" --dim N=1 --order $method --json -
    grep -q "below the file's" out.txt && fail "--order $method keeps the file's"
done
for method in dp anneal search ilp; do
    expect 0 "\"order\": \"$method: no order below the file's\"" \
        "$ullage" plan "$digits" --dim N=1 --order $method --json -
done
expect 0 '"pack": "greedy: by' "$ullage" plan "$digits" --dim N=1 --pack greedy --json -
expect 0 '"pack": "exact: ' "$ullage" plan "$digits" --dim N=1 --pack exact --json -
awk 'BEGIN { print "id,lower,upper,size"; x = 1
             for (i = 0; i < 2100; i++) { x = x * 16807 % 2147483647; b = x % 40
                 print i "," b "," b + 1 + x % 20 "," 1 + x % 50021 } }' >many.csv
expect 4 'pack exact: there are too many buffers' "$ullage" pack many.csv --pack exact --json many.json
grep -q '"method": "exact"' many.json || fail 'many.json'
expect 0 'greedy' "$ullage" pack many.csv --pack greedy
# claims about the cost that contradict each other
expect 0 'checked' "$ullage" plan "$digits" --dim N=64 --budget-of arena --budget 300000 --json within.json
expect 0 '^ok' "$ullage" check "$digits" within.json
sed 's/"cost_bound": /&9/' within.json >bound.json
expect 6 'bound of the cost is above the cost' "$ullage" check "$digits" bound.json
sed 's/"overhead": [^,]*/"overhead": 0.5/' within.json >claim.json
expect 6 '"overhead" does not follow' "$ullage" check "$digits" claim.json
sed 's/"cost_bound": [0-9]*/"cost_bound": 1/' within.json >claim.json
expect 6 '"cost_bound" is below the [0-9]* that every step takes once' "$ullage" check "$digits" claim.json
cost=$(sed -n 's/^  "cost": \([0-9]*\),/\1/p' within.json)
sed "s/\"cost_bound\": [0-9]*/\"cost_bound\": $cost/; s/\"optimal\": false/\"optimal\": true/; /\"optimal_within\"/d" \
    within.json >claim.json
expect 6 '"optimal" of one rewriting' "$ullage" check "$digits" claim.json
expect 4 "smallest budget known to work is [0-9.]* MiB = $bytes bytes; whether a smaller one works, with steps split" \
    "$ullage" compile "$digits" --dim N=1 --budget $((bytes - 1)) -o program --json small.json
[ -e program ] && { echo "FAIL: a program that does not fit was written"; failed=1; }
sed 's/"optimal": false/"optimal": true/' small.json >claim.json
expect 6 'contradicts the cost and its bound' "$ullage" check "$digits" claim.json
sed 's/"proven": false/"proven": true/' small.json >claim.json
expect 6 '"proven": that nothing is within the budget' "$ullage" check "$digits" claim.json
# and about bytes
"$ullage" plan "$digits" --dim N=1 --budget-of arena --json buffer.json >/dev/null
for claim in '"smallest_budget_bytes": 64' '"orders_lower_bound_bytes": 999999'; do
    sed "s/${claim%%:*}: [0-9]*/$claim/" buffer.json >claim.json
    expect 6 "${claim%%:*} is " "$ullage" check "$digits" claim.json
done
# and about the process, the program's own or a caller's
for options in 'plan --target c' 'plan --target cpu --threads 1' 'plan --target c --weights rom' \
    'compile --target c --emit source'; do
    # shellcheck disable=SC2086
    "$ullage" $options "$digits" --dim N=1 --json process.json >/dev/null
    expect 0 '^ok: ' "$ullage" check "$digits" process.json
    took=$(sed -n 's/^  "process_bytes": \([0-9]*\),/\1/p' process.json)
    stacks=$(sed -n 's/.*"stacks": \([0-9]*\),.*/\1/p' process.json)
    sed "s/: $took,/: $((took - 1)),/" process.json >claim.json # the smallest budget, too
    expect 6 'the parts of "process" are' "$ullage" check "$digits" claim.json
    sed -i "s/\"stacks\": $stacks,/\"stacks\": $((stacks - 1)),/" claim.json
    expect 6 "\"process_bytes\" is $((took - 1)), and here the program takes $took" \
        "$ullage" check "$digits" claim.json
done
rm -rf source
expect 0 'more time  layouts$' "$ullage" plan "$digits" --dim N=1 --sweep
expect 1 '^ullage: error: --sweep shows all budgets .*: leave --budget out' \
    "$ullage" plan "$digits" --dim N=1 --sweep --budget 64K
expect 0 '^reserved_bytes,' "$ullage" plan "$digits" --dim N=1 --sweep --csv - --json ladder.json
grep -q 'more time' out.txt && { echo "FAIL: --csv - does not print its table alone"; failed=1; }
grep -q '"format": "ullage-ladder"' ladder.json || { echo "FAIL: no ladder as JSON"; failed=1; }
expect 0 '^name,type,class' "$ullage" plan "$digits" --dim N=1 --csv -
expect 1 'of one plan' "$ullage" plan "$digits" --dim N=1 --sweep --trace -
for option in --sweep '--align 64' '--order dfs' '--remat none' '--pack best' '--seed 1' '--time-limit 1'; do
    # shellcheck disable=SC2086
    expect 1 "^ullage: error: ${option%% *} is for making a plan: it takes no --plan" \
        "$ullage" plan "$digits" --plan plan.json $option
done
for alignment in 0 3 5000000000; do
    sed "s/\"alignment_bytes\": [0-9]*/\"alignment_bytes\": $alignment/" on3.json >claim.json
    expect 6 "\"alignment_bytes\" is $alignment, and no power of two" "$ullage" check "$digits" claim.json
done
# but for its steps without any reuse, to compare bits with
expect 0 'Recompute: none. Packing: none' "$ullage" plan "$digits" --plan plan.json --pack none
for option in '--io caller' '--weights rom' --keep-inputs '--no-pass fuse'; do
    # shellcheck disable=SC2086
    expect 6 'was made with --dim N=1 .*; give the same, or make another' \
        "$ullage" plan "$digits" --plan plan.json $option
done
expect 1 'remat magic: expected' "$ullage" plan "$digits" --dim N=1 --remat magic
expect 0 '\["remat", "none"\]' "$ullage" plan "$digits" --dim N=1 --remat none --json -
"$ullage" plan "$digits" --dim N=1 --remat greedy --json remat.json >/dev/null
expect 0 '^ok: ' "$ullage" check "$digits" remat.json
grep -q '"fits": false' small.json || { echo "FAIL: no plan was written on exit 4"; failed=1; }

# plans: another model's, an edited one, no plan at all
expect 0 '^ok: ' "$ullage" check "$digits" plan.json
sed 's/"model_sha256": "./"model_sha256": "0/' plan.json >other.json
expect 6 'made for another model' "$ullage" check "$digits" other.json
expect 6 'made for another model' \
    "$ullage" check "$here/../frontend/cases/missing_input.onnx" plan.json
for command in 'plan' 'compile --emit emitted'; do # the same graph with other weights is no error
    # shellcheck disable=SC2086
    expect 6 'plan.json: was made for another model' \
        "$ullage" $command "$here/../frontend/cases/missing_input.onnx" --plan plan.json
    # shellcheck disable=SC2086
    expect 0 'needs|reserves' "$ullage" $command "$digits" --plan other.json
done
expect 0 'reserves' compile "$digits" --plan plan.json -o planned
expect 0 'needs' "$ullage" plan "$digits" --plan plan.json
expect 6 'plan was made with --dim N=1, not N=2; leave the option out, or make another' \
    "$ullage" plan "$digits" --dim N=2 --plan plan.json
expect 6 'plan was made with --dim N=1, not N=2;' \
    "$ullage" compile "$digits" --dim N=2 --plan plan.json --emit emitted
expect 6 'plan was made with --dim N=1 .*; give the same, or make another' \
    "$ullage" plan "$digits" --shape x=2,1,8,8 --plan plan.json
expect 0 'needs' "$ullage" plan "$digits" --shape x=1,1,8,8 --plan plan.json
expect 0 '^ok: ' "$ullage" check "$digits" plan.json
sed 's/"offset_bytes": \[[0-9]*/"offset_bytes": [64/' plan.json >moved.json
cmp -s plan.json moved.json || expect 6 'moved.json' "$ullage" check "$digits" moved.json
# many plans at once, each judged by itself
echo '{' >broken.json
expect 0 '^plan.json: ok: ' "$ullage" check "$digits" plan.json plan.json
expect 6 '^ullage: error: 2 of 4 plans were not accepted' \
    "$ullage" check "$digits" broken.json plan.json moved.json plan.json
[ "$(grep -c '^plan.json: ok: ' out.txt)" = 2 ] || fail "check of many: $(cat out.txt)"
grep -q '^ullage: error: broken.json: ' out.txt || fail "check of many: $(cat out.txt)"
expect 2 '1 of 2 plans was not accepted' "$ullage" check "$digits" broken.json plan.json
# a problem in text is planned and checked without its model
"$ullage" plan "$digits" --dim N=1 --print-problem digits.problem --json on.json >/dev/null
expect 0 '^reserved ' "$ullage" solve digits.problem -o digits.plan
expect 0 '^ok: ' "$ullage" check digits.problem digits.plan
expect 0 '^ok: ' "$ullage" check digits.problem on.json
expect 0 '^digits.plan: ok: ' "$ullage" check digits.problem on.json digits.plan
got=$("$ullage" solve digits.problem --json - | grep -E '"(reserved_bytes|cost)"')
[ "$got" = "$(grep -E '^  "(reserved_bytes|cost)"' on.json)" ] || fail "solve differs from plan: $got"
sed 's/^reserved ./reserved 9/' digits.plan >odd.plan
expect 6 'odd.plan: space 0: reserves' "$ullage" check digits.problem odd.plan
sed '3s/.*/value fish/' digits.problem >odd.problem
expect 2 'odd.problem: line 3: expected a number' "$ullage" solve odd.problem
expect 4 'smallest budget known to work is [0-9]' "$ullage" solve digits.problem --budget 64
expect 4 'no plan within 64 bytes exists' "$ullage" solve digits.problem --budget 64
expect 4 'remat chain: .*; it needs blocks in a chain' "$ullage" solve digits.problem --budget 36000 --remat chain
# a capacity in the problem is a budget, and what is proven is said as of a graph
bytes=$(sed -n 's/^  "reserved_bytes": \([0-9]*\),/\1/p' on.json | head -1)
sed "s/^space 0 .*/& capacity $bytes/" digits.problem >enough.problem
expect 0 '^cost .*, bound [1-9]' "$ullage" solve enough.problem --json enough.json
for key in cost_bound optimal optimal_within proven; do
    grep -q "\"$key\": " enough.json || fail "solve --json lacks $key"
done
sed "s/^space 0 .*/& capacity 1000/" digits.problem >small.problem
expect 4 'no plan within 1000 bytes' "$ullage" solve small.problem
expect 4 'no plan within 900 bytes' "$ullage" solve small.problem --budget 900
grep -q 'proven optimal' out.txt && fail 'what does not fit is no optimum'
printf '{"format":"ullage-graph","version":1,"nodes":[{"id":0,"name":"a","bytes":64,"cost":1},
    {"id":1,"name":"b","bytes":64,"cost":1}],"edges":[[0,1]],"order":[0,1]}' >two.json
expect 4 'remat chain: no schedule fits 100 bytes .proven' "$ullage" solve two.json --budget 100 --remat chain
grep -q '^method *chain' out.txt || fail "two.json: $(grep '^method' out.txt)"

# another space: of the file, or of the command line
printf '{"format":"ullage-graph","version":1,"nodes":[%s{"id":3,"bytes":100,"cost":10},%s],"edges":[[0,1],[1,2],[2,3],
    [3,4],[2,5],[4,5],[1,6],[5,6],[0,7],[6,7]],"order":[0,1,2,3,4,5,6,7]}' \
    "$(for id in 0 1 2; do printf '{"id":%s,"bytes":100,"cost":10},' $id; done)" \
    "$(for id in 4 5 6; do printf '{"id":%s,"bytes":10,"cost":20},' $id; done){\"id\":7,\"bytes\":10,\"cost\":20}" >back.json
expect 0 '^cost *120 .*, 0 of 8 nodes' "$ullage" solve back.json --budget 220 --offload-bandwidth 10000
expect 0 '^transfers    2 saves of 200 bytes, 2 loads; 0 of' "$ullage" solve back.json --budget 220 --offload-bandwidth 10000
expect 0 '^transfers    1 saves of 100 bytes' "$ullage" solve back.json --budget 220 --offload-bandwidth 10000 --offload-budget 100
expect 0 '^cost *140 .*, bound 13[0-9] by .*, 2 of 8 nodes' "$ullage" solve back.json --budget 220 --offload-bandwidth 1500
expect 0 '^cost *140 .*, 2 of 8 nodes' "$ullage" solve back.json --budget 220 --offload-budget 99
expect 1 'give --budget' "$ullage" solve back.json --offload-budget 99
expect 1 'this problem has none' "$ullage" solve digits.problem --budget 36000 --offload-budget 99

# two outputs in place of one input: at that one step they would overwrite each other
data=$("$here/../ops/data.sh")
take_over_twice() { # TEST EDIT
    "$ullage" plan "$data/$1/model.onnx" --target c --json two.json >/dev/null
    expect 0 '^ok: ' "$ullage" check "$data/$1/model.onnx" two.json
    sed "$2" two.json >one.json
    expect 6 'both take over range' "$ullage" check "$data/$1/model.onnx" one.json
}
if [ -d "$data" ]; then
    take_over_twice test_momentum '/"alias"/s/2, 3]/2, 2]/; /"offset_bytes"/s/128, 192]/128, 128]/'
    take_over_twice test_batchnorm_example_training_mode \
        '/"alias"/s/3, 4,/3, 3,/; /"offset_bytes"/s/640, 704, 768]/640, 640, 768]/'
fi
expect 2 'broken.json' "$ullage" check "$digits" broken.json
expect 0 'reserves' "$ullage" compile "$digits" --dim N=1 --plan plan.json --emit emitted

# what goes wrong after planning
for flag in -o --json; do # before it compiles for minutes
    expect 5 "^ullage: error: $flag nowhere/program: there is no folder nowhere" \
        "$ullage" compile "$digits" --dim N=1 --emit emitted --cc false $flag nowhere/program
done
expect 7 'C compiler failed' "$ullage" compile "$digits" --dim N=1 --cc false -o program
expect 7 'the C compiler, none-such, is not here: install one .*--cc or \$CC' \
    "$ullage" compile "$digits" --dim N=1 --cc none-such -o program
mkdir without && ln -s "$(type -P true)" without/cc
expect 7 'there is no make here' env PATH="$PWD/without" "$ullage" compile "$digits" --dim N=1 -o program
rm -r without
expect 1 'C identifier' "$ullage" compile "$digits" --dim N=1 --prefix 'a b' --emit source
expect 1 'named as others' "$ullage" compile "$digits" --dim N=1 --library --prefix weights --emit source
expect 1 'names of the runtime begin so' "$ullage" compile "$digits" --dim N=1 --prefix ul --emit source
expect 1 'say in which folder' "$ullage" compile "$digits" --dim N=1 --library -o program --emit source
expect 1 'say where the library goes' "$ullage" compile "$digits" --dim N=1 --shared-library --emit source
for cc in '' ' ' -cc @cc; do
    expect 1 'expected a command' "$ullage" compile "$digits" --dim N=1 --cc "$cc" -o program
done
expect 1 'not both' "$ullage" compile "$digits" --dim N=1 -o - --json -
expect 0 'reserves' compile "$digits" --dim N=1 --target c -o /dev/null
[ -c /dev/null ] || { echo "FAIL: /dev/null was replaced"; failed=1; }

# graph dumps
expect 0 '^graph ' "$ullage" plan "$digits" --dim N=1 --print-after fuse
# A budget tries several programs, and --print-after prints the one that is picked.
expect 0 '^ *%.*\[1/' "$ullage" plan "$digits" --dim N=4 --target c --advice off --budget-of arena \
  --budget 177KiB --print-after split
expect 0 '^graph ' "$ullage" plan "$digits" --dim N=1 --stop-after infer
expect 0 'group=' "$ullage" plan "$digits" --dim N=1 --stop-after fuse
expect 0 '^kernel$' "$ullage" plan "$digits" --dim N=1 --target c --print-kernels
expect 0 '^schedule of target c, emitted as k0$' compile "$digits" --dim N=1 --target c --print-kernels -o /dev/null
for command in compile verify; do
    expect 1 'unknown option --stop-after' "$ullage" $command "$digits" --stop-after infer
done

# results go over no input
cp "$digits" mine.onnx
for flag in "-o mine.onnx" "-o x --json ./mine.onnx" "-o x --const x=mine.onnx --json mine.onnx"; do
    # shellcheck disable=SC2086
    expect 1 'would destroy the input' "$ullage" compile mine.onnx --dim N=1 $flag
done
cmp mine.onnx "$digits" || { echo "FAIL: the model was overwritten"; failed=1; }
expect 1 'would destroy the input plan.json' \
    "$ullage" compile "$digits" --plan plan.json -o program --json plan.json
expect 1 'same takes' "$ullage" compile "$digits" --dim N=1 -o same --json same
expect 1 'same takes the result of --json or that of --csv, not both' \
    "$ullage" plan "$digits" --dim N=1 --sweep --json same --csv same
cp plan.json kept.json
expect 1 'csv kept.json would destroy the input' \
    "$ullage" plan "$digits" --sweep --csv kept.json --plan kept.json
mkdir sources && echo 'int x;' >sources/model.c
expect 1 'no earlier result' "$ullage" compile "$digits" --dim N=1 --emit sources
expect 0 'reserves' "$ullage" compile "$digits" --dim N=1 --emit emitted
expect 0 'reserves' "$ullage" compile "$digits" --dim N=1 --emit emitted

# device profiles: built-in, measured, from a file; a plan holds what check needs
expect 0 '^generic-core .*' "$ullage" profile --list
expect 0 '^h100-sxm .*data sheet' "$ullage" profile --list
expect 1 'takes no -o' "$ullage" profile --list -o x
expect 1 'takes no file' "$ullage" profile x
expect 7 'C compiler failed' "$ullage" profile -o machine.json --cc false
[ -e machine.json ] && { echo "FAIL: a failed profile left a file"; failed=1; }
expect 5 'profile --list' "$ullage" plan "$digits" --dim N=1 --profile abacus
echo '{' >machine.json
expect 2 'machine.json: line' "$ullage" plan "$digits" --dim N=1 --profile machine.json
expect 0 'on generic-core' "$ullage" plan "$digits" --dim N=1
expect 0 'on t4' "$ullage" plan "$digits" --dim N=1 --profile t4 --json t4.json
expect 0 '^ok' "$ullage" check "$digits" t4.json
sed 's/"t4"/"l4"/' t4.json >other.json
expect 6 'costs' "$ullage" check "$digits" other.json
cat >machine.json <<'END'
{"format": "ullage-profile", "version": 1, "name": "abacus", "source": "beads",
 "overhead_nanoseconds": 1e6, "memory_levels": [{"up_to_bytes": null, "gigabytes_per_second": 0.001}],
 "giga_operations_per_second": {"matmul_f32": 0.001, "matmul_tf32": 0.001, "matmul_f64": 0.001,
 "matmul_f16": 0.001, "matmul_int8": 0.001, "window": 0.001, "vector": 0.001, "special": 0.001,
 "scalar": 0.001}}
END
expect 0 'on abacus' "$ullage" plan "$digits" --dim N=1 --profile machine.json --json abacus.json
expect 1 'would destroy the input' \
    "$ullage" plan "$digits" --dim N=1 --profile machine.json --json machine.json
grep -q '"profile-sha256"' abacus.json || { echo "FAIL: no hash of the profile"; failed=1; }
rm machine.json
expect 0 '^ok' "$ullage" check "$digits" abacus.json
sed 's/\["profile", "abacus"\]/["profile", "slate"]/' abacus.json >other.json
expect 6 "other.json: the plan's profile: it is called \"abacus\"" "$ullage" check "$digits" other.json
expect 0 'on abacus' "$ullage" plan "$digits" --plan abacus.json --json again.json
cmp abacus.json again.json || { echo "FAIL: a plan with a profile does not come back"; failed=1; }

# a pipe that nobody reads, and a stop while the C compiler runs; then nothing is left behind
compile "$digits" --dim N=1 --target c -o - 2>/dev/null | head -c 10 >/dev/null
cat >slow-cc <<'END'
#!/bin/bash
touch "$STARTED"
sleep 60
END
chmod +x slow-cc
for signal in TERM INT HUP; do
    rm -f started
    STARTED=$work/started bash -c 'trap - INT; exec "$@"' - env --default-signal=INT \
        "$ullage" compile "$digits" --dim N=1 --cc "$work/slow-cc" -o program 2>/dev/null &
    child=$!
    for _ in $(seq 100); do [ -e started ] && break; sleep 0.05; done
    SECONDS=0
    kill -$signal $child
    wait $child 2>/dev/null
    got=$?
    [ $got = $((128 + $(kill -l $signal))) ] && [ $SECONDS -lt 20 ] ||
        { echo "FAIL: $signal ended compile with $got after $SECONDS s"; failed=1; }
done

# a stop or a full disk while --emit writes: the folder is whole or not there
for pause in 0.02 0.05 0.1 0.2 0.4; do
    timeout -s TERM $pause "$ullage" compile "$digits" --dim N=1 --target c --emit stopped 2>/dev/null
    [ ! -e stopped ] || make -s -C stopped -n program >/dev/null || fail "--emit left a part behind"
    rm -rf stopped
done
full() { (trap '' XFSZ && ulimit -f 8 && exec "$@"); }
expect 5 'weights.bin: cannot write' full "$ullage" compile "$digits" --dim N=1 --target c --emit full
[ ! -e full ] || fail "--emit left a part behind on a full disk"
mkdir full
expect 5 'cannot write' full "$ullage" compile "$digits" --dim N=1 --target c --emit full
[ -z "$(ls -A full)" ] || fail "--emit left a part behind in a folder: $(ls -A full)"
expect 0 'reserves' "$ullage" compile "$digits" --dim N=1 --target c --emit full/
expect 0 'reserves' "$ullage" compile "$digits" --dim N=1 --target c --emit full
make -s -C full -n program >/dev/null || fail "--emit into a folder that exists"
left=$(echo full/.[!.]* full.* stopped*)
[ "$left" = 'full/.[!.]* full.* stopped*' ] || fail "--emit left $left"

# what is printed must arrive, and goes nowhere else
printf 'id,lower,upper,size\na,0,2,8\n' >one.csv
for command in "plan $digits --dim N=1" "inspect $digits" "pack one.csv" \
    "check $digits abacus.json" "solve --help" --help --version help 'help plan'; do
    # shellcheck disable=SC2086
    to() { "$ullage" $command >"$1"; }
    expect 5 'standard output cannot be written' to /dev/full
    # shellcheck disable=SC2086
    closed() { "$ullage" $command >&-; }
    expect 5 'standard output cannot be written' closed
done
expect 5 'standard output' bash -c '"$@" >&-' - "$ullage" plan "$digits" --dim N=1 --json closed.json
[ -z "$(grep -v '^[{}" ]' closed.json | head -1)" ] || fail "text went into the JSON"

# sizes past what a library counts, and none at all
for name in product gemm; do
    for dim in M K N; do
        rest=$(for other in M K N; do [ $other = $dim ] || echo "--dim $other=2"; done)
        # shellcheck disable=SC2086
        expect 3 '"y" .*(MatMul|Gemm).*axis of over 2147483647' "$ullage" plan --target cpu \
            "$here/../frontend/cases/${name}_dims.onnx" --dim $dim=4294967296 $rest
    done
done
expect 3 '"y" .*Conv.*axis of over' "$ullage" plan --target cpu \
    "$here/../frontend/cases/window_dims.onnx" --dim L=2147483648
expect 0 'needs' "$ullage" plan --target c "$here/../frontend/cases/window_dims.onnx" \
    --dim L=2147483648
# the library divides by zero, or tries for minutes: kernels of ours
expect 0 'needs' "$ullage" plan --target cpu "$here/../frontend/cases/window_dims.onnx" \
    --dim L=2147483000
expect 0 'needs' timeout 10 "$ullage" plan --target cpu "$here/../frontend/cases/window_long.onnx"
expect 1 'dim N=-1: expected NAME=N, N at least 0' "$ullage" plan "$digits" --dim N=-1
# dimensions that the file writes as expressions follow in lists, in tables and in searches
sum=$here/../frontend/cases/dims_sum.onnx
expect 0 'f32\[1,9\]' "$ullage" inspect "$sum" --dim batch=1 --dim seq=2 --dim past=7
expect 0 '^  "past \+ seq" of "past", "seq" = 9' "$ullage" inspect "$sum" --dim batch=1 --dim seq=2 --dim 'past + seq=9'
expect 0 '"name": "past \+ seq", "size": null, "of": \["past", "seq"\]' "$ullage" inspect "$sum" --json -
expect 0 '^ +2 +9 ' "$ullage" plan "$sum" --target c --dim batch=1 --dim seq=1,2 --dim past=0,9 --sweep
expect 0 'past = [0-9]+ fits' "$ullage" plan "$sum" --target c --dim batch=1 --dim seq=1 --max-dim past \
    --budget-of arena --budget 4KiB
expect 0 'past \+ seq = [0-9]+ fits' "$ullage" plan "$sum" --target c --dim batch=1 --dim seq=1 \
    --max-dim 'past + seq' --budget-of arena --budget 4KiB
expect 0 'past = 8 fits; the model does not take the next' "$ullage" plan "$sum" --target c --dim batch=1 \
    --dim seq=1 --dim 'past + seq=9' --max-dim past --budget-of arena --budget 4KiB
# dimensions that an operator needs to be equal are one, and what contradicts is named where it stands
joined=$here/../frontend/cases/joined.onnx
two=(--target c --dim batch=2 --dim seq=2 --dim past=7)
expect 0 'note: dimension "past_batch" is 2, as node 0 "join" \(Concat\) needs it; .*"total" is 9, .*"rows" is 9' \
    "$ullage" plan "$joined" "${two[@]}"
expect 0 '^ +4 +[0-9]+ ' "$ullage" plan "$joined" --target c --dim batch=2 --dim seq=2,4 --dim past=7 --sweep
expect 1 'may be left out: .*"past_batch" is that of "batch", .*"total" follows from others, .*"rows" is that of "total"' \
    "$ullage" plan "$joined" --target c
expect 0 'may be left out: .*"past_batch" is that of "batch"' "$ullage" inspect "$joined"
expect 1 '^  dimension "total" \(axis 1 of input "mask"\) is 8: node 1 "mask_it" \(Mul\) would take 9$' \
    "$ullage" plan "$joined" "${two[@]}" --dim mask_batch=2 --dim width=9 --dim rows=9 --dim total=8
expect 1 '^  dimension "total" \(axis 1 of input "mask"\) is 8: .* would take 9$' \
    "$ullage" plan "$joined" "${two[@]}" --dim width=9 --dim rows=9 --shape mask=2,8
expect 3 'dimension "rows" \(axis 0 of input "w"\) is 5: .*"product" \(MatMul\) would take 9' \
    "$ullage" inspect "$joined" "${two[@]:2}" --dim rows=5
# so is a size that follows from others
expect 1 '^  dimension "past\+1" \(axis 1 of input "mask"\) is 8: node 1 "mask_it" \(Mul\) would take 9$' \
    "$ullage" plan "$here/../frontend/cases/joined_sum.onnx" "${two[@]:0:2}" --dim batch=1 --dim seq=2 --dim past=7
# and one of an axis without a name
expect 1 '^  axis 1 of input "mask" is 10: node 1 "mask_it" \(Mul\) would take 9$' \
    "$ullage" plan "$here/../frontend/cases/joined_unnamed.onnx" "${two[@]:0:2}" --dim batch=1 --dim seq=2 \
    --dim past=7 --shape mask=1,10
# where no size fits, none is said to follow
expect 1 'dimension 1 of input "past": give --dim past=SIZE$' \
    "$ullage" plan "$here/../frontend/cases/joined_max.onnx" --target c --dim batch=1 --dim seq=2
! grep -q 'may be left out' out.txt || fail "of a size that must be given: $(cat out.txt)"
# that a table ends is no size of what is looked up in it
expect 1 'axis=1|dimension 1 of input "x": give --dim seq=SIZE$' \
    "$ullage" plan "$here/../frontend/cases/joined_table.onnx" --target c --dim batch=2
expect 2 'cannot be broadcast' "$ullage" plan "$here/../frontend/cases/joined_table.onnx" --target c \
    --dim batch=2 --dim seq=1001
# inputs with a default are constants, or inputs
default=$here/../frontend/cases/defaults.onnx
expect 0 '^  "scale" f32\[2\], with a default' "$ullage" inspect "$default"
grep -q '^constants by their default, inputs with --keep-defaults: 1$' out.txt || fail "inspect: $(cat out.txt)"
expect 0 '"defaults": \[$' "$ullage" inspect "$default" --json -
expect 0 '^inputs: 2$' "$ullage" inspect "$default" --keep-defaults
expect 0 'reserves' compile "$default" --target c -o constant
expect 1 'no such name' ./constant --random 1 --input scale=scale.npy
expect 0 'reserves' compile "$default" --target c --keep-defaults -o kept
expect 1 '^    scale +float32 \[2\]' ./kept --output-dir results
expect 0 '^verdict: same' "$ullage" verify "$default" --target c --keep-defaults --cflags -O0
# memory that ullage itself lacks: the bytes, and that they are its own
truncate -s 128M large.onnx
if (ulimit -v 60000 && "$ullage" --version) >/dev/null 2>&1; then # not with sanitizers
    expect 4 'large.onnx: out of memory: its 134217728 bytes cannot be mapped' \
        bash -c 'ulimit -v 60000; "$@"' limited "$ullage" plan large.onnx --target c
    expect 4 'out of memory: [0-9]+ bytes more could not be allocated for ullage itself, beside [0-9]+' \
        bash -c 'ulimit -v 60000; cat large.onnx | "$@"' limited "$ullage" plan - --target c
fi
rm large.onnx
# a size of 0 is one
expect 0 'buffer [0-9]' "$ullage" plan "$sum" --target c --dim batch=1 --dim seq=2 --dim past=0
TMPDIR='' expect 0 'reserves' compile "$digits" --dim N=1 --target c -o program

# threads wait busily for microseconds, not for milliseconds, unless the environment says how
expect 0 'reserves' compile "$digits" --dim N=1 --target cpu --threads 2 -o program
rounds() {
    env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT "$@" OMP_DISPLAY_ENV=verbose ./program --version 2>&1 |
        sed -n "s/^ *GOMP_SPINCOUNT = '\(.*\)'/\1/p" | tail -1
}
[ "$(rounds)" = 2000 ] || fail "a program waits for $(rounds) rounds"
[ "$(rounds GOMP_SPINCOUNT=77)" = 77 ] || fail "GOMP_SPINCOUNT is not heard"
[ "$(rounds OMP_WAIT_POLICY=active)" -gt 1000000 ] || fail "OMP_WAIT_POLICY is not heard"

# nothing is left behind
rm program
left=$(ls tmp)
[ -z "$left" ] || { echo "FAIL: left in TMPDIR: $left"; failed=1; }
[ -e program ] && { echo "FAIL: a failed compile left a program"; failed=1; }
exit $failed
