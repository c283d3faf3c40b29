# SPDX-License-Identifier: Apache-2.0
"""Packs emitted programs with inputs and expected results, for tests/gpu/run.sh elsewhere.

    prepare.sh [--ullage build/release/cli/ullage] [--ops all] [--models all] [--full NAME,NAME]
               [--precision fp32,fp16,bf16] [--limit 64MiB] OUT.tar.gz

Operators: those of ONNX's node tests that pass by tests/ops/tests.tsv, with their recorded inputs
and outputs, which target c reproduces. Models: the networks of models/, scaled down (--full: these
at full size too), on random inputs, some of them quantized by onnxruntime; what they should give is
computed here by target c in float32.

    rows.tsv            a line a program: group, name, folder, folder of its data, what to check
                        (or why it could not be emitted), options of --test-data
    runtime/            the runtime's files, which are the same for all programs
    ops/NAME/           kernels.cu, model.c, ... weights.bin; runtime.txt: which of the runtime's
    models/NAME.fp16/   files belong here; data/ and NAME.data/: input_K.pb, output_K.pb
    models/NAME.typed_fp16/  of a model of 16 bits itself (models/lib_half.py, with islands)
    models/NAME.plain/  the same without reuse of memory: its results have the same bits
    run.sh, toolkit.sh, activity.c, lock.cu, unload.cu; facts.txt

Exit: 0 ready, 4 larger than --limit, 6 something could not be emitted (it is in rows.tsv all the
same, so that it counts as failed), 1 usage.
"""

import argparse
import concurrent.futures
import filecmp
import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(HERE, "..", "ref"), os.path.join(HERE, "..", "ops"), os.path.join(HERE, ".."),
                os.path.join(ROOT, "models")]  # fmt: skip

import compare_ort  # noqa: E402
import lib_half  # noqa: E402
import list_tests  # noqa: E402
import make  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import quantized  # noqa: E402
from lib_run import random_inputs  # noqa: E402
from onnx import numpy_helper  # noqa: E402
from part import part  # noqa: E402

# uint8 to int64, bool, uint32 and uint64, of TensorProto
INTEGERS = {2, 3, 4, 5, 6, 7, 9, 12, 13}
TYPES = {"fp16": 10, "bf16": 16}  # likewise
# The norm error at which `ullage verify` takes results of float16 and of bfloat16.
NORM_LIMITS = {10: 5e-3, 16: 3e-2}
SMALL_ELEMENTS = 4096  # an input that may be fixed at compile time, as in `ullage verify`
# What runs a pack.
RUNNING = ("run.sh", "toolkit.sh", "activity.c", "lock.cu", "unload.cu")
# Built a second time without reuse: one of each kind.
PLAIN = ("resnet50", "unet", "bert_base", "gpt2", "swin_t", "lstm")
# One quantisation step apart is right: a sum within rounding of a boundary may fall to either side.
# In 16 bits more of them are.
QUANTIZED = ("resnet50_qdq", "resnet50_qdq_i8", "mobilenet_v2_qdq", "bert_base_dynamic")
OPTIONS = {name: "--atol 0.05" for name in ("qdq_convnet", *QUANTIZED)}
OPTIONS_16_BITS = {"qdq_convnet": "--atol 0.05", "integer_net": "--atol 0.02"}


class Failure(Exception):
    """A program that could not be emitted; the text is one line."""


def checked(command, what):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", check=False)  # fmt: skip
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        errors = [line for line in lines if "error" in line]
        raise Failure(f"{what}: exit {done.returncode}: {(errors or lines)[0]}"[:300])
    return done.stdout


def save_tensor(path, name, array):
    with open(path, "wb") as file:
        file.write(numpy_helper.from_array(array, name).SerializeToString())


def read_tensor(path):
    with open(path, "rb") as file:
        return onnx.TensorProto.FromString(file.read())


def number_of(path):
    return int(re.search(r"_(\d+)\.pb$", path).group(1))


class Pack:
    """The folder that is being filled."""

    def __init__(self, args, folder):
        self.args, self.folder, self.rows = args, folder, []

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def emit(self, model, folder, options):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        checked([self.args.ullage, "compile", model, "--target", self.args.target, "--emit", folder,
                 *options, *self.args.options], "emitting")  # fmt: skip

    def add(self, group, name, folder, data, checks, options="-"):
        self.rows.append((group, name, folder, data, checks, options))

    def share_runtime(self):
        """The runtime's files are in every emitted folder; here they are once for all."""
        os.makedirs(self.path("runtime"), exist_ok=True)
        for folder in sorted(glob.glob(self.path("*", "*", ""))):
            names = sorted(name for name in os.listdir(folder) if name.startswith("ul_"))
            for name in names:
                shared = self.path("runtime", name)
                if not os.path.exists(shared):
                    shutil.move(os.path.join(folder, name), shared)
                elif filecmp.cmp(os.path.join(folder, name), shared, shallow=False):
                    os.remove(os.path.join(folder, name))
                else:
                    sys.exit(f"prepare.py: {folder}{name} is not the runtime's")
            if names:
                with open(os.path.join(folder, "runtime.txt"), "w", encoding="utf-8") as file:
                    file.write("\n".join(names) + "\n")


# ---- operators ----


def node_tests(args, data):
    """(name, names of the inputs that are constants, options) of the tests that target c passes."""
    tests = []
    for row in list_tests.scope_rows(data):
        if row["compiled"] == "pass" and re.search(args.ops, row["test"]):
            constants = [] if row["constants"] == "-" else row["constants"].split(",")
            tests.append((row["test"], constants, "-" if row["atol"] == "-" else f"--atol {row['atol']}"))
    return tests[:: args.stride]


def fixed_sets(constants, inputs):
    """What to fix at compile time: what the test's row says, else as `ullage verify` tries."""

    def small(tensor):
        return len(tensor.dims) <= 1 and np.prod(tensor.dims, dtype=int) <= SMALL_ELEMENTS

    integers = [name for name, tensor in inputs.items()
                if small(tensor) and tensor.data_type in INTEGERS]  # fmt: skip
    for names in (constants, integers, [name for name, tensor in inputs.items() if small(tensor)]):
        yield set(names)


def recorded(source, kind, ports):
    """Tensors of the data by the program's names, a sequence's each, and files of those that have one."""
    tensors, files = {}, {}
    for path in sorted(glob.glob(os.path.join(source, f"{kind}_*.pb")), key=number_of):
        port = ports[number_of(path)]
        if port.type.HasField("sequence_type"):
            with open(path, "rb") as file:
                items = onnx.SequenceProto.FromString(file.read()).tensor_values
            tensors.update((f"{port.name}[{k}]", tensor) for k, tensor in enumerate(items))
            continue
        tensor = read_tensor(path)
        own = tensor.name if tensor.name in [one.name for one in ports] else port.name
        tensors[own], files[own] = tensor, path
    return tensors, files


def save_recorded(folder, kind, tensors):
    for number, (name, tensor) in enumerate(tensors.items()):
        tensor.name = name
        with open(os.path.join(folder, f"{kind}_{number}.pb"), "wb") as file:
            file.write(tensor.SerializeToString())


def node_test(pack, data, name, constants):
    """Emits it with its data; the limit of the norm error where a result has 16 bits, else 0."""
    source = os.path.join(data, name, "test_data_set_0")
    model = os.path.join(data, name, "model.onnx")
    graph = onnx.load(model, load_external_data=False).graph
    inputs, files = recorded(source, "input", graph.input)
    outputs, _ = recorded(source, "output", graph.output)
    target, first = pack.path("ops", name), None
    for fixed in fixed_sets(constants, inputs):
        options = []
        for own, tensor in inputs.items():
            if own in fixed and own in files:
                options += ["--const", f"{own}={files[own]}"]
            elif tensor.dims or own not in files:
                options += ["--shape", f"{own}={','.join(map(str, tensor.dims))}"]
        try:
            pack.emit(model, target, options)
        except Failure as failure:
            first = first or failure
            continue
        os.makedirs(os.path.join(target, "data"))
        free = {own: tensor for own, tensor in inputs.items() if own not in fixed or own not in files}
        save_recorded(os.path.join(target, "data"), "input", free)
        save_recorded(os.path.join(target, "data"), "output", outputs)
        return max(NORM_LIMITS.get(tensor.data_type, 0) for tensor in outputs.values())
    shutil.rmtree(target, ignore_errors=True)
    raise first


def add_operators(pack, pool):
    data = list_tests.find_data(pack.args.data)
    tests = part(node_tests(pack.args, data))
    jobs = {name: (pool.submit(node_test, pack, data, name, constants), options)
            for name, constants, options in tests}  # fmt: skip
    for name, (job, options) in jobs.items():
        checks = "data,sanitize"
        try:
            if (limit := job.result()) > 0:
                options = f"{options} --norm --norm-limit {limit}".removeprefix("- ")
        except Failure as failure:
            checks = f"not emitted: {failure}"
        pack.add("ops", name, f"ops/{name}", f"ops/{name}/data", checks, options)


# ---- models ----


def expected(pack, model, folder):
    """Random inputs, and what target c computes from them, as input_K.pb and output_K.pb."""
    graph = onnx.load(model, load_external_data=False)
    arrays = random_inputs(graph, 1)
    os.makedirs(folder)
    with tempfile.TemporaryDirectory(dir=pack.args.work) as work:
        program = os.path.join(work, "program")
        checked([pack.args.ullage, "compile", model, "-o", program, "--target", "c"],
                "compiling for target c")  # fmt: skip
        command = [program]
        for number, (name, array) in enumerate(arrays.items()):
            save_tensor(os.path.join(folder, f"input_{number}.pb"), name, array)
            np.save(os.path.join(work, f"input_{number}.npy"), array)
            command += ["--input", f"{name}={work}/input_{number}.npy"]
        names = [output.name for output in graph.graph.output]
        for number, name in enumerate(names):
            command += ["--output", f"{name}={work}/output_{number}.npy"]
        checked(command, "running for target c")
        for number, name in enumerate(names):
            save_tensor(os.path.join(folder, f"output_{number}.pb"), name,
                        np.load(os.path.join(work, f"output_{number}.npy")))  # fmt: skip


def model_path(pack, name, small):
    if name not in QUANTIZED:
        return compare_ort.model_path(
            argparse.Namespace(model=name, small=small, batch=1, seq=None))
    path = os.path.join(pack.args.work, f"{name}{'' if small else '_full'}.onnx")
    quantized.make_quantized(name, path, small=small)
    return path


def model_in(pack, model, precision):
    path = os.path.join(pack.args.work, f"{os.path.basename(model)}.{precision}.onnx")
    make.save(lib_half.half(onnx.load(model), precision, islands=True), path)
    return path


def add_model(pack, name, small):
    label = name if small else name + "_full"
    model, data = model_path(pack, name, small), pack.path("models", label + ".data")
    checks = "data,memory,free,alloc,guard" + (",sanitize" if small else "")
    precisions = [precision for precision in pack.args.precision
                  if name not in QUANTIZED or precision == "fp32"]  # fmt: skip
    programs = [(f"{label}.{precision}", precision, checks) for precision in precisions]
    # The same as a model of 16 bits itself, whose inputs and outputs are float32.
    typed = {precision: model_in(pack, model, precision) for precision in precisions
             if precision != "fp32" and small}  # fmt: skip
    programs += [(f"{label}.typed_{precision}", precision, checks) for precision in typed]
    if name in PLAIN and "fp32" in pack.args.precision:
        programs[0] = (f"{label}.fp32", "fp32", checks + ",bits")
        programs.append((f"{label}.plain", "plain", "data"))
    try:
        expected(pack, model, data)
        first = None
    except Failure as failure:
        first = failure
    for program, precision, kinds in programs:
        options = {"fp32": [], "plain": ["--pack", "none"]}.get(precision)
        if options is None:
            options = ["--precision", precision]
        try:
            if first is not None:
                raise first
            if ".typed_" in program:
                pack.emit(typed[precision], pack.path("models", program), [])
            else:
                pack.emit(model, pack.path("models", program), options)
        except Failure as failure:
            kinds = f"not emitted: {failure}"
        group = "models " + ("fp32" if precision == "plain" else precision)
        more = (OPTIONS_16_BITS if precision in ("fp16", "bf16") else OPTIONS).get(name, "")
        if ".typed_" in program:  # no --precision tells the program that it rounds
            more = f"--norm-limit {NORM_LIMITS[TYPES[precision]]} {more}".strip()
        pack.add(group, program, f"models/{program}", f"models/{label}.data", kinds,
                 f"--norm {more}".strip())  # fmt: skip


def networks(args):
    """(name, whether scaled down) of what is asked for."""
    known = [*make.NETWORKS, *QUANTIZED]
    chosen = known if args.models == "all" else args.models.split(",")
    full = [name for name in args.full.split(",") if name]
    full = known if args.full == "all" else full
    if args.models == "none":
        chosen = []
    for name in chosen + full:
        if name not in known:
            sys.exit(f"prepare.py: {name}: models/ has no such network")
    return part([(name, True) for name in chosen] + [(name, False) for name in full])


def add_models(pack, pool, wanted):
    jobs = [pool.submit(add_model, pack, name, small) for name, small in wanted]
    for job in jobs:
        job.result()
    pack.rows.sort(key=lambda row: row[0] != "ops")  # the order of the jobs is left to the pool
    models = [row for row in pack.rows if row[0] != "ops"]
    pack.rows[len(pack.rows) - len(models) :] = sorted(models)


# ---- the whole ----


def write_rows(pack):
    with open(pack.path("rows.tsv"), "w", encoding="utf-8") as file:
        for row in pack.rows:
            file.write("\t".join(row) + "\n")
    version = checked([pack.args.ullage, "--version"], "asking for the version").splitlines()[0]
    with open(pack.path("facts.txt"), "w", encoding="utf-8") as file:
        file.write(f"compiler   {version}\ntarget     {pack.args.target}\n")
    for name in RUNNING:
        shutil.copy(os.path.join(HERE, name), pack.path(name))


def plain_entry(info):
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def finish(pack, out):
    if out.endswith(".tar.gz"):
        with tarfile.open(out + ".part", "w:gz") as archive:
            archive.add(pack.folder, os.path.basename(out)[: -len(".tar.gz")], filter=plain_entry)
        os.replace(out + ".part", out)
        return os.path.getsize(out)
    sizes = [os.path.getsize(os.path.join(at, name))
             for at, _, names in os.walk(pack.folder) for name in names]  # fmt: skip
    return sum(sizes)


def size_bytes(text):
    match = re.fullmatch(r"(\d+)(?:([KMG])(?:iB)?)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text}: expected a size such as 64MiB")
    return int(match.group(1)) << {None: 0, "K": 10, "M": 20, "G": 30}[match.group(2)]


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(1, f"prepare.sh: {message}\n")


def parse():
    parser = Parser(prog="prepare.sh", description=__doc__.split("\n")[0])
    parser.add_argument("out", help="a folder, or a .tar.gz")
    parser.add_argument("--ullage", default=os.path.join(ROOT, "build/release/cli/ullage"))
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--ops", default=".", metavar="RE", help='names of node tests; "^$": none')
    parser.add_argument("--stride", type=int, default=1, help="only every K-th of them")
    parser.add_argument("--data", help="ONNX's node tests (default: those of tests/ops/data.sh)")
    parser.add_argument("--models", default="all", help='names, "all" or "none"; scaled down')
    parser.add_argument("--full", default="", metavar="NAMES",
                        help='these, or "all", at full size too')  # fmt: skip
    parser.add_argument("--precision", default="fp32,fp16,bf16")
    parser.add_argument("--limit", type=size_bytes, default=size_bytes("64MiB"))
    parser.add_argument("--jobs", type=int, default=2)
    argv = sys.argv[1:]
    at = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:at])
    args.options = argv[at + 1 :]  # of the compiler
    args.precision = args.precision.split(",")
    if "fp32" in args.precision:  # it is first, so that `add_model` finds it there
        args.precision = ["fp32"] + [name for name in args.precision if name != "fp32"]
    args.ullage = os.path.abspath(args.ullage)
    if not os.access(args.ullage, os.X_OK):
        parser.error(f"{args.ullage}: no such program; --ullage names the compiler")
    return args


def main():
    args = parse()
    wanted = networks(args)
    out = os.path.abspath(args.out)
    with tempfile.TemporaryDirectory() as work:
        args.work = work
        packed = out.endswith(".tar.gz")
        pack = Pack(args, os.path.join(work, "pack") if packed else out)
        if not packed and os.path.exists(out):
            sys.exit(f"prepare.py: {out} is there already")
        os.makedirs(pack.folder)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            add_operators(pack, pool)
            add_models(pack, pool, wanted)
        pack.share_runtime()
        write_rows(pack)
        total = finish(pack, out)
    missing = [row for row in pack.rows if row[4].startswith("not emitted")]
    for row in missing:
        print(f"FAIL {row[0]} {row[1]}: {row[4]}")
    print(f"{args.out}: {len(pack.rows)} programs, {len(missing)} of them could not be emitted, "
          f"{total / 2**20:.1f} MiB")  # fmt: skip
    if total > args.limit:
        print(f"prepare.py: larger than {args.limit / 2**20:.1f} MiB (--limit); leave out full "
              "sizes or precisions", file=sys.stderr)  # fmt: skip
        sys.exit(4)
    sys.exit(6 if missing else 0)


if __name__ == "__main__":
    main()
