#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs README's two commands and the installation on a bare Debian: a root of debootstrap's minbase
# with ca-certificates and git, so that nothing is leaned on that a machine which builds happens to
# have. The root is made from this machine's own apt sources in a folder of its own, and removed.
#
# usage: tests/bare/run.sh [--as root|user|both] [--pypi on|off|both] [--demo] [--keep] [--in DIR]
#        tests/bare/run.sh --wheel FILE|--deb FILE [--keep] [--in DIR]
#   --as     who runs the commands: root, a user with sudo, or one after the other (default)
#   --pypi   whether PyPI answers, and everything is run by each
#   --demo   the demo and the installation alone, without the tests
#   --wheel  the Python package alone, by a user: what it does without a C compiler, and with one
#   --deb    Debian's package alone: the same
#   --keep   leaves the root where it is and says where;  --in: make it under DIR (default /var/tmp)
# Without --pypi each is run once: the demo and the installation by root and without PyPI, the tests
# by the user and with it, but for those that take longest: what they need others need too.
# exit: 0 all passed, 77 debootstrap, root or namespaces are missing here, else the failing command's
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
who=both pypi='' tests=yes keep='' under=/var/tmp wheel='' deb=''
while [ $# -gt 0 ]; do
    case $1 in
    --as) who=${2:?--as needs root, user or both}; shift 2 ;;
    --pypi) pypi=${2:?--pypi needs on, off or both}; shift 2 ;;
    --demo) tests=; shift ;;
    --wheel) wheel=$(realpath "${2:?--wheel needs a file}"); shift 2 ;;
    --deb) deb=$(realpath "${2:?--deb needs a file}"); shift 2 ;;
    --keep) keep=yes; shift ;;
    --in) under=${2:?--in needs a folder}; shift 2 ;;
    -h | --help) sed -n '3,17s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown option $1" >&2; exit 1 ;;
    esac
done

skip() { echo "bare/run.sh: skipped: $*"; exit 77; }
say() { printf '\n==== bare root: %s\n' "$*"; }

[ "$(id -u)" = 0 ] || skip "only root can make a root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
unshare --mount --pid --fork true 2>/dev/null || skip "no namespaces here"

# The lines of this machine's apt sources that are Debian's own: address, release, component.
# shellcheck disable=SC2016
mapfile -t sources < <(apt-get indextargets 'Created-By: Packages' \
    --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' |
    sed -n 's/^Debian \([^ ]*\) \([^ ]*\) \([^ ]*\)$/\1 \2 \3/p' | awk '!seen[$0]++')
read -r mirror release _ <<<"${sources[0]:-}"
[ -n "$release" ] || skip "apt lists no Debian sources here; apt-get update fetches them"

folder=$(mktemp -d "$under/ullage-bare.XXXXXX")
remove() { # mounts live in namespaces of their own that are gone by now: nothing is removed through one
    [ -z "$keep" ] || { echo "kept: $folder"; return; }
    rm -rf --one-file-system "$folder"
}
trap remove EXIT
trap 'exit 130' INT TERM

# Tests that compute for long, each with kin that lean on the same tools, or on none.
long='^(cli_verify|gradient_rules|planner_.*|ops_sample.*|runtime_(warnings|readme_example)|tidy.*'
long+='|ref_(bytes|launches).*|golden_plans_plain|gpu_(bench|few|lock)|cuda_calls_few|frontend_damage'
long+='|cli|contract.*|cuda_(nvcc_few|calls_plans|emulation_.*)|docs_questions|ops_(eval|remedies)|runtime_device'
long+='|gpu_scripts|e2e_(threads|digits_cuda|advice|folded|forge|microcontroller|mutate'
long+='|no_float|process_few|qlora|reserved|shown|specials|stack_few|train_.*|what_if)'
long+='|e2e_(digits_bf16|digits_quantized|donate|gradient_nodes|integers|learn_inside|learn_ops|offload'
long+='|ort_training|quantize_activations|train_bytes|contributed|.*_few)_(c|cpu|cuda))$'

make_root() {
    say "debootstrap $release from $mirror"
    debootstrap --variant=minbase --include=ca-certificates,git "$release" "$folder/pristine" \
        "$mirror" >"$folder/debootstrap.log" 2>&1 ||
        skip "debootstrap made no root: $(tail -1 "$folder/debootstrap.log")"
    printf 'deb %s\n' "${sources[@]}" >"$folder/pristine/etc/apt/sources.list"
    # How this machine reaches the network is no part of what is tested.
    apt-config dump Acquire | grep -iE 'proxy|check-' \
        >"$folder/pristine/etc/apt/apt.conf.d/99machine" || true
    cp /etc/resolv.conf "$folder/pristine/etc/resolv.conf"
    cp /etc/ssl/certs/ca-certificates.crt "$folder/pristine/etc/ssl/certs/ca-certificates.crt"
    [ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$folder/pristine/etc/pip.conf"
    git clone -q --no-hardlinks "$source" "$folder/pristine/home/checkout"
    # With what is not committed yet.
    git -C "$source" ls-files -z --cached --others --exclude-standard |
        tar -C "$source" --null --files-from=- --ignore-failed-read -cf - |
        tar -C "$folder/pristine/home/checkout" --no-same-owner -xf -
}

# inside ROOT USER PYPI COMMAND: in namespaces of its own, with an environment of nothing
inside() {
    local index=()
    [ "$3" = on ] || index=(PIP_INDEX_URL=http://127.0.0.1:9/simple)
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child bash -c '
        set -e
        mount -t proc proc "$1/proc"
        mount -t tmpfs tmpfs "$1/dev/shm"
        mount -t devpts devpts "$1/dev/pts"
        exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${@:4}" \
            /usr/sbin/chroot "$1" su "$2" -s /bin/bash -c "$3"' \
        inside "$1" "$2" "$4" "${index[@]}"
}

# try USER PYPI demo|tests|all: README, as a reader of it would
try() {
    local root=$folder/root-$1-$2 start=$SECONDS sudo='' without=''
    [ "$3" != tests ] || without="-E '$long'"
    say "as $1, PyPI $2"
    cp -a --reflink=auto "$folder/pristine" "$root"
    if [ "$1" != root ]; then
        sudo=sudo
        inside "$root" root "$2" 'apt-get update -qq && apt-get install -y -qq sudo >/dev/null 2>&1
            useradd -m -s /bin/bash user && echo "user ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/user
            chown -R user /home/checkout'
    fi
    [ "$3" = tests ] || inside "$root" "$1" "$2" "cd /home/checkout && scripts/demo.sh"
    [ "$3" = tests ] || inside "$root" "$1" "$2" "cd /home/checkout && $sudo cmake --install build/release >/dev/null &&
        cd /tmp && ullage --version && ullage compile /home/checkout/models/digits/digits.onnx \
            --dim N=1 -o digits && ./digits --random 1 --memory && $sudo rm -rf digits"
    [ -z "$tests" ] || [ "$3" = demo ] || inside "$root" "$1" "$2" "cd /home/checkout && scripts/test.sh $without"
    [ -n "$keep" ] || rm -rf --one-file-system "$root"
    say "as $1, PyPI $2: passed in $((SECONDS - start)) s"
}

# The wheel in a venv: it plans with nothing else, says what compiling needs, and has it then.
try_wheel() {
    local root=$folder/root-wheel
    say "the wheel, as a user"
    cp -a --reflink=auto "$folder/pristine" "$root"
    cp "$wheel" "$root/tmp/"
    inside "$root" root on 'apt-get update -qq && apt-get install -y -qq --no-install-recommends \
        python3-venv >/dev/null 2>&1 && useradd -m -s /bin/bash user && ! command -v gcc make'
    inside "$root" user on 'cd ~ && python3 -m venv v && v/bin/pip install -q /tmp/*.whl &&
        v/bin/python /home/checkout/tests/bare/wheel.py no-compiler'
    inside "$root" root on 'apt-get install -y -qq --no-install-recommends gcc libc6-dev make \
        >/dev/null 2>&1'
    inside "$root" user on 'cd ~ && v/bin/python /home/checkout/tests/bare/wheel.py &&
        v/bin/ullage compile /home/checkout/models/digits/digits.onnx --dim N=1 -o digits &&
        ./digits --random 1 --memory && v/bin/python /home/checkout/python/examples/notebook.py'
    inside "$root" root on 'apt-get purge -y -qq --autoremove gcc libc6-dev make >/dev/null 2>&1
        ! ldconfig -p | grep libgomp'
    inside "$root" user on 'cd ~ && v/bin/python /home/checkout/tests/bare/wheel.py load'
    [ -n "$keep" ] || rm -rf --one-file-system "$root"
    say "the wheel: passed"
}

# Debian's package, installed by root for a user: as the wheel.
try_deb() {
    local root=$folder/root-deb compile='cd ~ && for target in c cpu; do
        ullage compile /home/checkout/models/digits/digits.onnx --dim N=1 --target $target -o digits || exit
        ./digits --random 1 --memory || exit; done'
    say "the package, as a user"
    cp -a --reflink=auto "$folder/pristine" "$root"
    cp "$deb" "$root/home/ullage.deb"
    inside "$root" root on 'apt-get update -qq && apt-get install -y -qq --no-install-recommends \
        /home/ullage.deb >/dev/null 2>&1 && useradd -m -s /bin/bash user && ! command -v gcc make'
    inside "$root" user on 'cd ~ && ullage --version &&
        ullage plan /home/checkout/models/digits/digits.onnx --dim N=1 &&
        { ullage compile /home/checkout/models/digits/digits.onnx --dim N=1 -o digits; [ $? = 7 ]; }'
    inside "$root" root on 'apt-get install -y -qq --no-install-recommends \
        $(dpkg-query -W -f "\${Recommends}" ullage | tr -d ,) >/dev/null 2>&1'
    inside "$root" user on "$compile"
    inside "$root" root on 'apt-get purge -y -qq ullage >/dev/null && [ ! -e /usr/share/ullage ] && [ ! -e /usr/lib/ullage ]'
    [ -n "$keep" ] || rm -rf --one-file-system "$root"
    say "the package: passed"
}

make_root
if [ -n "$wheel" ]; then
    try_wheel
elif [ -n "$deb" ]; then
    try_deb
elif [ -z "$pypi" ]; then
    [ "$who" = user ] || try root off demo
    [ "$who" = root ] || [ -z "$tests" ] || try user on tests
else
    for user in root user; do
        for state in off on; do
            [ "$who" = both ] || [ "$who" = "$user" ] || continue
            [ "$pypi" = both ] || [ "$pypi" = "$state" ] || continue
            try "$user" "$state" all
        done
    done
fi
