#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--space: buffers that are made of several memories.

    spaces.py ULLAGE MODEL.onnx [--dim N=1] [--make NETWORK...] [--keep DIR]

The model, and each network that is made, is compiled for target c with one buffer, and with its buffer in several memories, as small
as leaves some choice: outputs must be the same bit for bit, --memory and --guard must pass, the plan
must be what `check` accepts, and what --plan makes the program of. Plans that say something wrong of
spaces must be refused, and so must spaces that nothing can be made of. A library is linked with each
memory in a place of its own. Exit: 0 ok, 1 not.
"""

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

MAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "make.py")
# Parts of what one buffer takes, and the rates: a fast memory is small.
LAYOUTS = [
    [("dtcm", 0.3, "8GB/s", ""), ("sram", 1.0, "2GB/s", "")],
    [("dtcm", 0.2, "8GB/s", ""), ("sram", 0.5, "2GB/s", ""), ("psram", 1.5, "100MB/s", "")],
    [("sram", 0.9, "2GB/s", ""), ("store", 1.0, "400MB/s", ",weights"), ("spare", 0.5, "1MB/s", "")],
]
REFUSED = [  # arguments, and what the message says
    (["dtcm=0"], "a size above 0"), (["dtcm"], "NAME=SIZE"), (["=4K"], "NAME=SIZE"), (["dtcm="], "a size above 0"),
    (["dtcm=-1"], "a size above 0"), (["dtcm=99999999999999999999"], "a size above 0"), (["dtcm=4PiB"], "a size above 0"),
    (["arena=4K"], "the name is taken"), (["Stack=4K"], "the name is taken"),
    (["9a=4K"], "NAME=SIZE"), (["a b=4K"], "NAME=SIZE"), (["a\x1b[2J=4K"], "NAME=SIZE"), (["x" * 33 + "=4K"], "NAME=SIZE"),
    (["a=4K,bandwidth=0GB/s"], "a rate"), (["a=4K,bandwidth=8"], "a rate"), (["a=4K,bandwidth=1e9GB/s"], "a rate"),
    (["a=4K,bandwidth=8GB/s,bandwidth=8GB/s"], "each once"), (["a=4K,fast"], "each once"), (["a=4K,"], "each once"),
    (["a=4K,weights"], "the first space"), (["a=4K", "a=8K"], "of that name already"), (["a=4K", "A=8K"], "of that name already"),
    (["a=4K,bandwidth=8GB/s", "b=4K"], "b has no bandwidth, and a has one"), (["a=4K", "b=4K,bandwidth=1MB/s", "c=4K"], "no bandwidth"),
    (["sram=18446744073709551615"], "at most 256TiB"), ([f"sram={2 ** 48 + 1}"], "at most 256TiB"),
    (["a=512KB"], "512KiB, or"), (["a=1.5kB"], "1.5KiB"), (["a=2MB,weights"], "2MiB"),
    ([f"s{i}=4K" for i in range(9)], "at most 8"),
]
# C, C++, their headers or the emitted library use these for something else. The prefix of the library is the second.
NAMES = [
    ("NULL size_t uint64_t NAN banks sizes offset_bytes ul_run_init_banks", "model"), ("a a_bytes a_bank a_bank_bytes bank bank_bytes b weights", "a"),
    ("unix linux M_PI thread_local wchar_t bool restrict asm", "linux_"), ("not xor and_eq compl int class failure from", "bank"),
    ("offload input output to run model at init", "model"), ("UINT64_C INT_MAX errno assert UL_OK ul_model ul_at EOF", "UL"),
]
MISFITS = [  # spaces of digits, and what the message says of them
    (["a=4K", "b=4K"], "must hold all of"), (["a=40K", "b=60K", "c=64K,weights"], "It fits with"),
    (["dtcm=1", "sram=512KiB"], 'The first space must hold "banks"'), (["dtcm=1", "sram=180000"], 'The first space must hold "banks"'), (["dtcm=63", "sram=180000"], "takes 64 bytes, and dtcm has 63"),
]
HARNESS = """
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
%(buffers)s
static int read_weights(void *context, uint64_t offset, void *target, uint64_t size)
{
    return fseek(context, (long)offset, SEEK_SET) != 0 || fread(target, 1, (size_t)size, context) != size;
}

int main(void)
{
    static const void *inputs[MODEL_INPUT_COUNT];
    static void *outputs[MODEL_OUTPUT_COUNT];
    FILE *file = fopen("weights.bin", "rb");
    struct ul_weights_source source = {.read = read_weights, .context = file};
    if (fseek(file, 0, SEEK_END) != 0)
        return 1;
    source.size_bytes = (uint64_t)ftell(file);
    if (model_run(%(first)s, inputs, outputs, NULL) != UL_NOT_READY || model_init(%(arguments)s, &source, NULL) != UL_OK)
        return 2;
    for (unsigned i = 0; i < MODEL_INPUT_COUNT; i++)
        memset(model_at(%(first)s, model_model.inputs[i].offset_bytes), 0, (size_t)model_model.inputs[i].size_bytes);
    for (unsigned i = 0; i < MODEL_OUTPUT_COUNT; i++)
        outputs[i] = malloc((size_t)model_model.outputs[i].size_bytes + 1);
    if (model_run(%(first)s, inputs, outputs, NULL) != UL_OK)
        return 3;
    for (unsigned i = 0; i < MODEL_OUTPUT_COUNT; i++)
        fwrite(outputs[i], 1, (size_t)model_model.outputs[i].size_bytes, stdout);
    return 0;
}
"""


def run(command, wanted=0, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, **more)
    if done.returncode != wanted:
        sys.exit(f"FAIL {' '.join(map(str, command))}: exit {done.returncode}, not {wanted}\n"
                 f"{done.stdout.decode(errors='replace')[-1500:]}{done.stderr.decode(errors='replace')[-1500:]}")
    return done


def outputs_of(program, folder):
    """The files that a run on random inputs writes, by their names."""
    os.makedirs(folder, exist_ok=True)
    run([program, "--random", "7", "--output-dir", folder])
    return {name: open(os.path.join(folder, name), "rb").read() for name in sorted(os.listdir(folder))}


def options_of(layout, reserved):
    options = []
    for name, part, rate, more in layout:
        options += ["--space", f"{name}={max(4096, int(part * reserved) // 64 * 64)},bandwidth={rate}{more}"]
    return options


def check_plan(ullage, model, path, plan):
    """The plan, and each of it that is wrong in some way."""
    run([ullage, "check", model, path])
    banks = plan["banks"]
    for key in ("name", "capacity_bytes", "bandwidth_mb", "reserved_bytes", "live_bytes", "moved_bytes", "begin_bytes"):
        for bank in range(len(banks)):
            edited = json.loads(json.dumps(plan))
            edited["banks"][bank][key] = "other" if key == "name" else banks[bank][key] + 64
            refuse_plan(ullage, model, path, edited, f"{key} of bank {bank}")
    for key in ("bank_cost", "cost"):
        refuse_plan(ullage, model, path, {**plan, key: plan[key] + 1}, key)
    refuse_plan(ullage, model, path, {**plan, "bank_cost_bound": plan["bank_cost"] + 1}, "the bound")
    refuse_plan(ullage, model, path, {**plan, "banks": banks[1:]}, "a bank less")
    offsets = plan["ranges"]["offset_bytes"]
    end = banks[0]["begin_bytes"] + banks[0]["reserved_bytes"]
    for i, size in enumerate(plan["ranges"]["size_bytes"]):
        if plan["ranges"]["space"][i] == 0 and size > 64 and offsets[i] < end:
            edited = json.loads(json.dumps(plan))  # over the edge of the first bank
            edited["ranges"]["offset_bytes"][i] = end - 64
            refuse_plan(ullage, model, path, edited, f"range {i} across two banks")
            break


def refuse_plan(ullage, model, path, plan, what):
    edited = path + ".edited.json"
    with open(edited, "w") as file:
        json.dump(plan, file)
    done = subprocess.run([ullage, "check", model, edited], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode not in (2, 6):
        sys.exit(f"FAIL {model}: check accepts a plan with another {what}: exit {done.returncode}")


def check_library(ullage, model, options, dims, plan, folder):
    """The library, with every memory in a place of its own; its outputs for zeros."""
    emitted = os.path.join(folder, "library")
    run([ullage, "compile", model, "--target", "c", *dims, *options, "--emit", emitted])
    names = [bank["name"] for bank in plan["banks"]]
    buffers, arguments = [], []
    for i, name in enumerate(reversed(names)):  # the first one last, and something between them
        size = f"MODEL_{name.upper()}_BYTES"
        buffers.append(f"static unsigned char at_{name}[{size} + 64] __attribute__((aligned(MODEL_ARENA_ALIGN)));"
                       f"static unsigned char gap{i}[4096 * {i + 1}];")
        arguments.insert(0, f"at_{name}, {size}")
    touch = " ".join(f"(void)gap{i};" for i in range(len(names)))
    text = HARNESS % {"buffers": "\n".join(buffers), "first": "at_" + names[0], "arguments": ", ".join(arguments)}
    with open(os.path.join(emitted, "harness.c"), "w") as file:
        file.write(text.replace("int main(void)\n{", "int main(void)\n{\n    " + touch))
    run(["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-c", "library.c", "-o", "library.o"], cwd=emitted)
    run(["cc", "-O1", "-std=gnu99", "-Wall", "-Werror", "-Wno-unused", "-fsanitize=address,undefined", "-fno-sanitize-recover",
         "-ffp-contract=off", "harness.c", "model.c", "-lm", "-o", "harness"], cwd=emitted)
    return run([os.path.join(emitted, "harness")], cwd=emitted).stdout


def check_names(ullage, model, dims, folder):
    """Spaces of any name give a library that a C compiler takes, and a header that a C++ compiler takes too."""
    for number, (text, prefix) in enumerate(NAMES):
        names = text.split()
        options = [word for name in names for word in ("--space", f"{name}=1M,bandwidth=1GB/s")]
        emitted = os.path.join(folder, f"names{number}")
        run([ullage, "compile", model, "--target", "c", *dims, *options, "--library", "--prefix", prefix, "--emit", emitted])
        with open(os.path.join(emitted, "user.cc"), "w") as file:
            file.write(f'#include "{prefix}.h"\n#include <cmath>\nstatic_assert({prefix.upper()}_{names[0].upper()}_BYTES > 0, "");\n')
        strict = ["-Wall", "-Wextra", "-Werror", "-c", "-o", "out.o"]
        for command in (["cc", "-std=c99", f"{prefix}.c"], ["cc", "-std=gnu99", f"{prefix}.c"], ["c++", "-std=c++11", "user.cc"], ["c++", "-std=gnu++20", "user.cc"]):
            if shutil.which(command[0]) is not None:  # a user's machine may have no C++
                run([*command, *strict], cwd=emitted)


def check_model(ullage, model, dims, folder):
    os.makedirs(folder, exist_ok=True)
    plain, laid = os.path.join(folder, "plain"), os.path.join(folder, "laid")
    base = [ullage, "compile", model, "--target", "c", *dims]
    run([*base, "-o", plain])
    plan_path = os.path.join(folder, "plan.json")
    run([ullage, "plan", model, "--target", "c", *dims, "--advice", "off", "--json", plan_path])
    reserved = json.load(open(plan_path))["reserved_bytes"]
    wanted = outputs_of(plain, os.path.join(folder, "wanted"))
    figures = []
    for number, layout in enumerate(LAYOUTS):
        options = options_of(layout, reserved)
        run([*base, *options, "-o", laid, "--json", plan_path])
        plan = json.load(open(plan_path))
        if outputs_of(laid, os.path.join(folder, f"given{number}")) != wanted:
            sys.exit(f"FAIL {model} {options}: other outputs than with one buffer")
        text = run([laid, "--memory"]).stdout.decode()
        if any(f"  {bank['name']} " not in text for bank in plan["banks"]):
            sys.exit(f"FAIL {model} {options}: --memory does not show every space\n{text}")
        run([laid, "--guard"])
        page = os.path.join(folder, "page.html")
        shown = run([ullage, "report", plan_path, "--html", page]).stdout.decode()
        if "Spaces: a run moves" not in shown or open(page).read().count("class=\"bank\"") < 2:
            sys.exit(f"FAIL {model} {options}: the report does not show the spaces")
        # moving costs more than in the fastest space: no memory is saved by that
        if "for less memory" in shown or "without a budget;" in open(page).read():
            sys.exit(f"FAIL {model} {options}: the report compares the time to another plan\n{shown}")
        table = list(csv.DictReader(run([ullage, "report", plan_path, "--csv", "-"]).stdout.decode().splitlines()))
        for row in table:
            bank = next(bank for bank in plan["banks"] if bank["name"] == row["bank"])
            if int(row["space"]) == 0 and not 0 <= int(row["offset_bytes"]) - bank["begin_bytes"] <= bank["reserved_bytes"] - int(row["size_bytes"]):
                sys.exit(f"FAIL {model} {options}: the table has another bank: {row}")
        if number == 1:
            run([*base, "--plan", plan_path, "-o", laid])
            if outputs_of(laid, os.path.join(folder, "planned")) != wanted:
                sys.exit(f"FAIL {model}: other outputs by --plan")
            check_plan(ullage, model, plan_path, plan)
            check_library(ullage, model, options, dims, plan, folder)
        held = sum(bank["reserved_bytes"] > 0 for bank in plan["banks"])
        gap = 1 - plan["bank_cost_bound"] / max(1, plan["bank_cost"])
        figures.append(f"{held} of {len(layout)} spaces, gap {100 * gap:.2f} %")
    print(f"{os.path.basename(model)}: {'; '.join(figures)}")


def check_suggestions(plan, spaces, why):
    """What a refusal suggests works, and 64 bytes less do not."""
    text = run([*plan, *(word for space in spaces for word in ("--space", space))], wanted=4).stderr.decode()
    found = re.findall(r"--space (\w+)=(\d+)", text)
    if why not in text or not found:
        sys.exit(f"FAIL {spaces}: {text}")
    for name, size in found:
        for less, code in ((0, 0), (64, 4)):
            tried = [re.sub(r"=\d+[KMiB]*", f"={max(1, int(size) - less)}", space) if space.startswith(name + "=") else space for space in spaces]
            run([*plan, *(word for space in tried for word in ("--space", space))], wanted=code)


def check_refusals(ullage, model, dims, folder):
    plan = [ullage, "plan", model, "--target", "c", *dims]
    for spaces, why in REFUSED:
        options = [word for space in spaces for word in ("--space", space)]
        text = run([*plan, *options], wanted=1).stderr.decode()
        if why not in text or "\x1b" in text:
            sys.exit(f"FAIL {spaces}: {text}")
    two = ["--space", "a=4K", "--space", "b=4K"]
    path = os.path.join(folder, "misfit.json")
    shown = run([*plan, *two, "--json", path], wanted=4).stdout.decode()
    if re.search("% (more|less) time", shown):
        sys.exit(f"FAIL a plan that is in no space says what time spaces take\n{shown}")
    run([ullage, "check", model, path])
    for spaces, why in MISFITS:
        check_suggestions(plan, spaces, why)
    for more, why in ((["--budget", "1M"], "leave --budget out"), (["--offload", "host", "--budget", "1M"], "leave --budget out"), (["--sweep"], "--space"),
                      (["--train", "--loss", "mse"], "leave --space out"), (["--max-batch"], "knows no --space"), (["--max-dim", "N"], "knows no --space")):
        said = run([*plan, *two, *more], wanted=1).stderr.decode()
        if why not in said or "give --budget" in said:
            sys.exit(f"FAIL {more}: {said}")
    run([ullage, "plan", model, "--target", "cpu", *dims, *two], wanted=1)
    run([*plan, "--weights", "rom", "--space", "a=1M", "--space", "b=1M,weights"], wanted=1)


def check_alternatives(ullage, model, dims, folder):
    """Other programs of the model are planned without the capacities, which the model's own plan may exceed."""
    words = [ullage, "plan", model, *dims, "--target", "c", "--advice", "off", "--no-pass", "fuse"]
    for sizes in (("100K", "75K"), ("90K", "80K"), ("60K", "60K", "60K")):
        spaces = [word for i, size in enumerate(sizes) for word in ("--space", f"s{i}={size}")]
        done = subprocess.run([*words, *spaces], capture_output=True, text=True, cwd=folder, check=False)
        if done.returncode not in (0, 4) or "internal" in done.stderr:
            sys.exit(f"FAIL {sizes}: {done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ullage")
    parser.add_argument("model")
    parser.add_argument("--make", nargs="*", default=[], metavar="NETWORK", help="the same with these of models/make.py, in their small form")
    parser.add_argument("--dim", action="append", default=[])
    parser.add_argument("--keep", help="a folder for what is made")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.abspath(arguments.keep or temporary)
        dims = [word for dim in arguments.dim for word in ("--dim", dim)]
        os.makedirs(folder, exist_ok=True)
        check_names(arguments.ullage, arguments.model, dims, folder)
        check_refusals(arguments.ullage, arguments.model, dims, folder)
        check_alternatives(arguments.ullage, arguments.model, dims, folder)
        check_model(arguments.ullage, arguments.model, dims, os.path.join(folder, "given"))
        for name in arguments.make:
            path = os.path.join(folder, f"{name}.onnx")
            run([sys.executable, MAKE, name, "--small", "-o", path])
            check_model(arguments.ullage, path, [], os.path.join(folder, name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
