#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A list of every plan and every program's outputs: a refactoring shows by it that none changed.

    plans.py models DIR                    puts the models into DIR; needs the Python package onnx
    plans.py record ULLAGE DIR LIST [--base LIST] [--quick] [--plans] [--target NAME]... [--jobs N]
                                           writes the list of what ULLAGE makes of the models in DIR
    plans.py compare BASE NEW              prints every line that differs
    plans.py check ULLAGE [--plain] [--update]     ULLAGE against plans.txt beside this script; with
                                           --plain the lines without options alone

The models are the small form of all networks of models/, the trained one, ONNX's light models where
ULLAGE_DATA names a folder with light/, some of tests/e2e/nasty and of ONNX's node tests. DIR may
hold others: X.onnx, and X.options with more options, files relative to DIR.

A line is `model target options | what`. For a plan, `what` is
    plan=      a hash of order and alternatives (the columns ORDER of its steps, in turn) and of
               RANGE of all ranges, sorted: neither names nor numbers of values are in it
    reserved=, cost=, fits=no where a budget is not met, exit=N where there is no plan
    outputs=   of programs: a hash of the files that --random 1 --output-dir gives
and of --sweep, reserved:cost of every rung. Budgets are fractions of what the plan without one
reserves in the list of --base (default: in the new one): with it both sides are asked the same.
Two lists are compared that were recorded on one machine with one C compiler: outputs, and plans of
target cpu, depend on them and on oneDNN's version. Plans of targets c and cuda do not: plans.txt
holds those.

With --budget and --sweep another plan is allowed, if it fits wherever the base did, reserves no
more where neither fits, and costs no more: compare prints it and does not fail. Models of BASE that
NEW lacks altogether (--quick, no light models) are named, not compared.

exit: 0 the same but for what is allowed, 2 usage, 6 something differs, 77 a package is missing
"""

import argparse
import concurrent.futures
import csv
import glob
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GOLDEN = os.path.join(HERE, "plans.txt")

ORDER = ("step", "copy", "part", "alternative", "implementation")
RANGE = ("offset_bytes", "size_bytes", "begin", "end", "space", "class")

TARGETS = {
    "c": ["--target c"],
    "cpu": ["--target cpu --threads 1 --isa avx2", "--target cpu --threads 2 --isa avx2"],
    "cuda": ["--target cuda --with-cudnn on"],
}
# options -> whether a program is made, too. {0.75} is a budget; each takes seconds of search.
FEW = {"": False, "--pack none": False, "--keep-inputs": False, "--budget {0.75}": False,
       "--order greedy": False, "--precision bf16": False}  # fmt: skip
NETWORK = {
    "c": FEW | {"": True, "--budget {0.75}": True, "--precision bf16": True, "--sweep": False},
    "cuda": FEW,
}
NETWORK["cpu"] = NETWORK["c"] | {"--budget {0.9}": False, "--budget {0.5}": False}
NETWORK["c"]["--order dp"] = NETWORK["cpu"]["--order dp"] = False
NETWORK_THREADS = {"": True, "--precision bf16": False}
SMALL = FEW | {"": True}
SMALL_THREADS = {"": False}
# On target c no instructions but those that every machine has; the compiler is most of the time.
BUILD = {"c": ["--cflags", "-O0", "--march", "none"], "cpu": ["--cflags", "-O0"]}

QUICK = set("""digits gpt2 lstm_bi mobilenet_v2 qdq_convnet unet nasty_if_in_loop nasty_scan_reverse
    test_adam test_batchnorm_example_training_mode test_if test_loop11""".split())

NASTY = """concat_with_input_and_weight scan_square_axes scan_reverse loop_without_condition
    loop_stops_early if_in_loop side_chain_of_doublings uint32_compare_and_shift
    conv_reads_its_residual matmul_reads_its_residual call_residuals call_gate_of_itself
    call_weights_shared call_products call_dense_block call_pools beside_tokens beside_shuffle
    call_in_a_branch""".split()

NODES = """adagrad adam argmax_default_axis_example averagepool_2d_pads basic_conv_with_padding
    batchnorm_epsilon_training_mode batchnorm_example_training_mode
    bitshift_left_uint8 cast_FLOAT_to_DOUBLE celu clip concat_2d_axis_1 constant_pad
    conv_with_strides_padding convinteger_without_padding convtranspose_pads cumsum_2d_axis_0
    depthtospace_crd_mode_example det_2d dft
    dynamicquantizelinear einsum_batch_matmul erf expand_dim_changed
    eyelike_populate_off_main_diagonal gather_0 gathernd_example_float32 gemm_all_attributes
    globalaveragepool gridsample gru_defaults
    hardmax_axis_0 if instancenorm_example layer_normalization_4d_axis1 logsoftmax_axis_1 loop11
    lrn lstm_with_peepholes matmul_3d max_example maxpool_2d_ceil maxunpool_export_with_output_shape
    melweightmatrix mod_broadcast momentum_multiple mvn nesterov_momentum nllloss_NCd1d2_with_weight
    onehot_negative_indices pow prelu_broadcast qlinearconv
    qlinearmatmul_3D_uint8_float32 reduce_log_sum_exp_default_axes_keepdims_example
    reduce_sum_square_keepdims_random resize_upsample_scales_linear reversesequence_batch
    rnn_seq_length roialign_aligned_true scan9_sum scan_sum scatter_elements_with_axis scatternd_add
    sce_NCd1d2d3_sum_weight_high_ii_log_prob softmax_axis_2 split_variable_parts_2d_opset18 stft
    tfidfvectorizer_tf_uniandbigrams_skip5 tile top_k transpose_all_permutations_3 tril
    where_example""".split()


# --- models ---------------------------------------------------------------------------------------


def node_folder():
    script = os.path.join(ROOT, "tests", "ops", "data.sh")
    return subprocess.run([script], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def take_node_tests(folder):
    """Inputs that have to be constants (tests/ops/tests.tsv) are fixed to the test's data."""
    import onnx

    data = node_folder()
    with open(os.path.join(ROOT, "tests", "ops", "tests.tsv"), encoding="utf-8") as file:
        tests = {row["test"]: row for row in csv.DictReader(file, delimiter="\t")}
    for name in (f"test_{node}" for node in NODES):
        shutil.copyfile(f"{data}/{name}/model.onnx", f"{folder}/{name}.onnx")
        inputs = [one.name for one in onnx.load(f"{folder}/{name}.onnx").graph.input]
        words = []
        for constant in tests[name]["constants"].split(","):
            if constant in inputs:
                saved = f"{name}.{constant}.pb"
                shutil.copyfile(f"{data}/{name}/test_data_set_0/input_{inputs.index(constant)}.pb",
                                f"{folder}/{saved}")  # fmt: skip
                words += ["--const", f"{constant}={saved}"]
        write_options(folder, name, words)


def write_options(folder, name, words):
    if words:
        with open(f"{folder}/{name}.options", "w", encoding="utf-8") as file:
            file.write(" ".join(words) + "\n")


def take_nasty(folder):
    script = os.path.join(ROOT, "tests", "e2e", "nasty", "run.py")
    with tempfile.TemporaryDirectory() as made:
        subprocess.run([sys.executable, script, "--make", made, *NASTY], check=True)
        for name in NASTY:
            shutil.copyfile(f"{made}/{name}/model.onnx", f"{folder}/nasty_{name}.onnx")


def take_models(folder):
    import onnxruntime  # noqa: F401  what nasty/run.py needs besides

    os.makedirs(folder, exist_ok=True)
    maker = os.path.join(ROOT, "models", "make.py")
    with tempfile.TemporaryDirectory() as made:
        subprocess.run([sys.executable, maker, "all", "--small", "-o", made],
                       stdout=subprocess.DEVNULL, check=True)  # fmt: skip
        for path in glob.glob(f"{made}/*_small.onnx"):
            shutil.move(path, f"{folder}/{os.path.basename(path).removesuffix('_small.onnx')}.onnx")
    shutil.copyfile(f"{ROOT}/models/digits/digits.onnx", f"{folder}/digits.onnx")
    write_options(folder, "digits", ["--dim", "N=3"])
    for path in glob.glob(os.path.join(os.environ.get("ULLAGE_DATA", ""), "light", "*.onnx")):
        shutil.copyfile(path, f"{folder}/{os.path.basename(path)}")
    take_nasty(folder)
    take_node_tests(folder)


# --- record ---------------------------------------------------------------------------------------


def digest(what):
    return hashlib.sha256(what).hexdigest()[:16]


def run(command, folder):
    """(exit status, stdout); a command that hangs has the status of timeout(1)."""
    try:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=300, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, b""
    return done.returncode, done.stdout


def of_plan(path):
    with open(path, encoding="utf-8") as file:
        plan = json.load(file)
    order = list(zip(*(plan["steps"][key] for key in ORDER)))
    ranges = sorted(zip(*(plan["ranges"][key] for key in RANGE)))
    fields = {"plan": digest(json.dumps([order, ranges]).encode()),
              "reserved": plan["reserved_bytes"], "cost": plan["cost"]}  # fmt: skip
    return fields if plan["fits"] else {"fits": "no"} | fields


def of_sweep(text):
    rungs = csv.DictReader(io.StringIO(text.decode()))
    return {"rungs": ",".join(f"{rung['reserved_bytes']}:{rung['cost']}" for rung in rungs)}


def of_outputs(program, words, work):
    threads = [words[words.index("--threads") + i] for i in (0, 1)] if "--threads" in words else []
    command = [program, "--random", "1", *threads, "--output-dir", f"{work}/results"]
    status, _ = run(command, work)
    if status not in (0, 2):  # 2: a random index was out of range; the outputs are there
        return f"exit-{status}"
    hashes = hashlib.sha256()
    for name in sorted(os.listdir(f"{work}/results")):
        with open(f"{work}/results/{name}", "rb") as file:
            hashes.update(name.encode() + b"\0" + hashlib.sha256(file.read()).digest())
    return hashes.hexdigest()[:16]


def arena(words):
    """Budgets of the list bound the buffer."""
    return [*words, "--budget-of", "arena"]


def of_case(args, name, target, machine, options, has_program):
    """The fields of one line."""
    more, given = f"{args.models}/{name}.options", ""
    if os.path.exists(more):
        with open(more, encoding="utf-8") as file:
            given = file.read()
    words, model = f"{given} {machine} {options}".split(), f"{name}.onnx"
    with tempfile.TemporaryDirectory(prefix="ullage-plans-") as work:
        if options == "--sweep":
            status, text = run([args.ullage, "plan", model, *arena(words), "--csv", "-"], args.models)
            return of_sweep(text) if status == 0 else {"exit": status}
        saved, program = f"{work}/plan.json", f"{work}/program"
        has_program = has_program and target in BUILD and not args.plans
        build = ["compile", model, *arena(words), *BUILD[target], "-o", program] if has_program else []
        command = [args.ullage, *(build or ["plan", model, *arena(words)])]
        status, _ = run([*command, "--json", saved], args.models)
        if not os.path.exists(saved):
            return {"exit": status}
        fields = of_plan(saved)
        if has_program and "fits" not in fields:
            fields["outputs"] = "none" if status else of_outputs(program, words, work)
        return fields


def is_small(name):
    return name.startswith(("test_", "nasty_"))


def of_machine(args, base, name, target, machine):
    """{key: fields} of one model and one row of TARGETS."""
    table = SMALL if is_small(name) else NETWORK[target]
    if "--threads 2" in machine:
        table = SMALL_THREADS if is_small(name) else NETWORK_THREADS
    key, lines = f"{name} {machine.removeprefix('--target ')}", {}
    for options, has_program in table.items():
        if args.plain and options:
            continue
        if "{" in options:
            free = base.get(key, lines[key]).get("reserved")
            if free is None:
                continue
            before, fraction = options.rstrip("}").split("{")
            options = before + str(int(int(free) * float(fraction)))
        line = of_case(args, name, target, machine, options, has_program)
        lines[f"{key} {options}".rstrip()] = line
    return lines


def text_of(key, fields):
    return f"{key} | " + " ".join(f"{name}={value}" for name, value in fields.items())


def parse(lines):
    cut = (line.rstrip("\n").split(" | ") for line in lines)
    return {key: dict(word.split("=", 1) for word in fields.split()) for key, fields in cut}


def read_list(path):
    with open(path, encoding="utf-8") as file:
        return parse(file)


def record(args):
    args.ullage, args.models = os.path.abspath(args.ullage), os.path.abspath(args.models)
    base = read_list(args.base) if args.base else {}
    files = os.listdir(args.models)
    names = [file.removesuffix(".onnx") for file in files if file.endswith(".onnx")]
    jobs = [(name, target, machine) for name in names if not args.quick or name in QUICK
            for target in args.target or TARGETS for machine in TARGETS[target]]  # fmt: skip
    jobs.sort(key=lambda job: (is_small(job[0]), job))  # the long ones first
    lines = {}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for some in pool.map(lambda job: of_machine(args, base, *job), jobs):
            lines |= some
    with open(args.list, "w", encoding="utf-8") as file:
        file.writelines(sorted(text_of(key, fields) + "\n" for key, fields in lines.items()))
    return 0


# --- compare --------------------------------------------------------------------------------------


def number(fields, name):
    return int(fields.get(name, -1))


def fault_of_sweep(base, new):
    """Every rung of base has one of new beside it that is neither larger nor dearer."""
    if "rungs" not in base or "rungs" not in new:
        return "no sweep" if "rungs" in base else None
    rungs = [tuple(map(int, rung.split(":"))) for rung in new["rungs"].split(",")]
    for reserved, cost in (map(int, rung.split(":")) for rung in base["rungs"].split(",")):
        if not any(one <= reserved and other <= cost for one, other in rungs):
            return f"no rung within {reserved} bytes at a cost of {cost}"
    return None


def fault_of_budget(base, new, budget):
    if "exit" in new:
        return "no plan"
    if "exit" in base:
        return None
    if "fits" in new:
        if "fits" not in base:
            return "no longer fits"
        return "reserves more" if number(new, "reserved") > number(base, "reserved") else None
    if number(new, "reserved") > budget:
        return "reserves more than the budget"
    if "fits" not in base and number(new, "cost") > number(base, "cost"):
        return "costs more"
    if new["plan"] == base["plan"] and new.get("outputs") != base.get("outputs"):
        return "other outputs of the same plan"
    if new.get("outputs", "").startswith(("exit", "none")):
        return "no outputs"
    return None


def fault(key, base, new):
    """What is wrong with a line that differs, or nothing where it may."""
    words = key.split()
    if "--sweep" in words:
        return fault_of_sweep(base, new)
    if "--budget" in words:
        return fault_of_budget(base, new, int(words[words.index("--budget") + 1]))
    return "differs"


def compare(base, new, plain=False):
    models = {key.split()[0] for key in new}
    if plain:
        machines = {machine.removeprefix("--target ") for rows in TARGETS.values() for machine in rows}
        base = {key: fields for key, fields in base.items() if key.split(" ", 1)[1] in machines}
    absent = {key.split()[0] for key in base} - models
    if absent:
        print(f"{len(absent)} models are only in the base list: {' '.join(sorted(absent))}")
    keys = sorted(key for key in base.keys() | new.keys() if key.split()[0] in models)
    differing = [key for key in keys if base.get(key) != new.get(key)]
    failed = 0
    for key in differing:
        if key in base and key in new:
            problem = fault(key, base[key], new[key])
        else:
            problem = "only in the new list" if key in new else "only in the base list"
        failed += problem is not None
        print(f"{'FAIL' if problem else 'allowed'} {key}{': ' + problem if problem else ''}")
        for sign, side in (("-", base), ("+", new)):
            if key in side:
                print(f"    {sign} {text_of(key, side[key])}")
    print(f"{len(keys)} lines, {len(differing)} differ, {failed} of them must not")
    return 6 if failed else 0


def check(args):
    with tempfile.TemporaryDirectory(prefix="ullage-plans-") as folder:
        os.environ.pop("ULLAGE_DATA", None)
        take_models(folder)
        args.models, args.list = folder, f"{folder}/new.txt"
        args.base = None if args.update else GOLDEN
        args.quick, args.plans, args.target, args.jobs = False, True, ["c", "cuda"], 2
        record(args)
        if args.update:
            shutil.copyfile(args.list, GOLDEN)
            return 0
        return compare(read_list(GOLDEN), read_list(args.list), args.plain)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    sub = commands.add_parser
    sub("models").add_argument("folder")
    one = sub("record")
    one.add_argument("ullage")
    one.add_argument("models")
    one.add_argument("list")
    one.add_argument("--base", help="the list that budgets are taken from")
    one.add_argument("--quick", action="store_true", help="some of the models")
    one.add_argument("--plans", action="store_true", help="no programs")
    one.add_argument("--plain", action="store_true", help="without options alone")
    one.add_argument("--target", action="append", choices=TARGETS)
    one.add_argument("--jobs", type=int, default=2)
    one = sub("compare")
    one.add_argument("base")
    one.add_argument("new")
    one = sub("check")
    one.add_argument("ullage")
    which = one.add_mutually_exclusive_group()
    which.add_argument("--plain", action="store_true", help="without options alone")
    which.add_argument("--update", action="store_true", help="rewrite plans.txt")
    args = parser.parse_args()
    try:
        if args.command == "models":
            take_models(args.folder)
            return 0
        if args.command == "record":
            return record(args)
        if args.command == "compare":
            return compare(read_list(args.base), read_list(args.new))
        return check(args)
    except ImportError as error:
        print(f"plans.py: skipped: {error}")
        return 77


if __name__ == "__main__":
    sys.exit(main())
