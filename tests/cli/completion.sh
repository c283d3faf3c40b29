#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Completion: what bash and zsh offer. bash is asked by the variables that it asks with; zsh, where
# it is installed, on a terminal of its own.
#
# usage: tests/cli/completion.sh ULLAGE
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

"$ullage" help --completion bash >ullage.bash || fail "help --completion bash"
"$ullage" help --completion zsh >_ullage || fail "help --completion zsh"
expect 1 'give bash or zsh' "$ullage" help --completion fish
expect 1 'give bash or zsh' "$ullage" help --completion
mkdir here here/models
cd here || exit 1
touch model.onnx 'two words.onnx' plan.json notes.txt

# shellcheck disable=SC1091
. ../ullage.bash

# offers WANTED WORD...: what bash offers for the last word, sorted
offers() {
    local wanted=$1 got
    shift
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _ullage
    got=$(printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort | paste -sd,)
    [ "$got" = "$wanted" ] || fail "bash offers for \"$*\": $got; expected $wanted"
}
offers 'check,compile' ullage c
offers '--help,--version' ullage --
offers '--budget,--budget-of' ullage plan --budg
offers '--order' ullage solve --ord
offers '' ullage report --ord
offers '' ullage plan --budget ''
offers 'dfs,dp' ullage plan model.onnx --order d
offers 'dfs,dp' ullage plan --order = d
offers 'exact' ullage pack --pack = ex
offers 'c,cpu,cuda' ullage compile --target c
offers 'fp32,bf16' ullage plan --sweep --precision fp32,b
offers 'auto' ullage plan --train --micro-batches ''
offers 'bce' ullage plan --loss b
offers 'output:' ullage plan --loss o
offers '' ullage plan --loss output :
offers '' ullage plan --loss output : m
offers 'blocks,none,products,sqrt' ullage plan --train --checkpoint ''
offers 'none,notes.txt' ullage compile --offload n
offers 'int4,int8' ullage compile --quantize int
offers 'constant,cosine:' ullage plan --train --schedule co
offers 'warmup:5,step:' ullage plan --train --schedule warmup:5,st
offers 'native,none' ullage compile --march n
offers 'all' ullage plan --print-after al
offers 'dce' ullage plan --no-pass dc
offers 'avx2,avx2_vnni' ullage plan --isa avx2
offers 'fuse' ullage plan --no-pass fus
offers 'rtx-4090' ullage plan --device rtx-4
offers 'model.onnx,models' ullage plan m
offers 'model.onnx,models,two words.onnx' ullage inspect ''
offers 'models,plan.json' ullage compile --plan ''
offers 'notes.txt' ullage plan --html n
offers 'models' ullage compile --emit ''
offers 'plan' ullage help pl
offers '--man' ullage help --m
offers 'bash' ullage help --completion b
case $- in *f*) fail "completion leaves globbing off" ;; esac
for name in $("$ullage" help --json | sed -n 's/^    {"name": "\([a-z]*\)".*/\1/p'); do
    said=$("$ullage" help "$name" | grep -oE '^  (-., )?--[a-z0-9-]+' | grep -oE -- '--.*' | LC_ALL=C sort | paste -sd,)
    offers "$said" ullage "$name" --
done

if ! command -v zsh >/dev/null; then
    echo "zsh is not installed: what it offers is not checked"
    exit $failed
fi
zsh -n ../_ullage || fail "zsh does not read _ullage"

# What zsh adds as matches, for each line, on a terminal of its own. From its prompt on it reads key by
# key: a line is killed (^U), not run, since keys that come between two prompts are the terminal's.
zsh -f -s "$work" >../offered.txt 2>&1 <<'ZSH'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "fpath=($1 \$fpath); autoload -Uz compinit; compinit -D -u; cd $1/here"
zpty -w shell 'compadd() { builtin compadd -O offered "$@"; print -r -- "$BUFFER: $offered" >>../matches.txt; builtin compadd "$@" }'
zpty -w shell 'PS1=REA""DY'
zpty -m -r shell output '*READY*'
for line in 'ullage c' 'ullage plan --budg' 'ullage plan --order d' 'ullage plan --order=d' 'ullage plan --device rtx-4' \
    'ullage plan m' 'ullage export x.onnx x' 'ullage compile --plan p' 'ullage help pl' 'ullage help --completion b' \
    'ullage plan --loss s' 'ullage plan --loss o' 'ullage plan --checkpoint s' 'ullage plan --offload ho' 'ullage plan --quantize int4' \
    'ullage compile --march no' 'ullage help --j'; do
    zpty -wn shell "$line"$'\t\x15'
done
zpty -w shell 'print DO""NE'
zpty -m -r shell output '*DONE*'
ZSH
touch ../matches.txt
zsh_offers() { # LINE WORDS
    grep -qxF "$1: $2" ../matches.txt || fail "zsh offers for \"$1\": $(grep -F "$1: " ../matches.txt); expected $2"
}
zsh_offers 'ullage c' 'compile check'
zsh_offers 'ullage plan --budg' '--budget --budget-of'
zsh_offers 'ullage plan --order d' 'dfs dp'
zsh_offers 'ullage plan --order=d' 'dfs dp'
zsh_offers 'ullage plan --device rtx-4' 'rtx-4090'
zsh_offers 'ullage plan m' 'model.onnx'
zsh_offers 'ullage compile --plan p' 'plan.json'
zsh_offers 'ullage help pl' 'plan'
zsh_offers 'ullage plan --loss s' 'softmax-cross-entropy'
zsh_offers 'ullage plan --loss o' 'output:'
zsh_offers 'ullage plan --checkpoint s' 'sqrt'
zsh_offers 'ullage plan --offload ho' 'host'
zsh_offers 'ullage plan --quantize int4' 'int4'
zsh_offers 'ullage compile --march no' 'none'
zsh_offers 'ullage help --j' '--json'
zsh_offers 'ullage help --completion b' 'bash'
exit $failed
