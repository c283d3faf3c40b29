#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program that is part of somebody else's says that it takes: of the stack, of flash.

    stack.py few ULLAGE     some small models of each kind
    stack.py all ULLAGE     the small networks of models/, and every tenth of ONNX's node tests

A model is emitted with its weights as read-only data and the caller's buffers, and compiled by its
Makefile with -O2 and with -O3. The stack that plan.json and MODEL_STACK_BYTES say is no less than the
worst path of gcc's own frames (-fcallgraph-info=su) below model_init, model_run and what trains, and than a run
wrote of a painted stack (paint.c); above the larger of these by no more than as much again, or 4 KiB.
On target cpu, where libraries take stack too, the painted stack alone tells; a plan that a budget
leaves no call counts neither the library's stack, nor its state, nor kernels that do not run. The code that plan.json
says for flash is no less than the sections of model.o, by -O2.

Exit: 0 ok, 1 a promise is broken, 77 something is missing here.
"""

import argparse
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

try:
    from onnx import helper, parser, save
except ImportError as error:
    print(f"stack.py: skipped: {error}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
MAKE = os.path.join(ROOT, "models", "make.py")
HEAD = '<ir_version: 8, opset_import: ["": 17]>'
FLAGS = ["-O2", "-O3"]
ROM = ["--weights", "rom", "--io", "caller"]
ENTRIES = ["model_init", "model_run", "model_set_up", "model_train_step", "model_save", "model_load"]
CALL_BYTES = 8  # the address that a function returns to
HARNESS_BYTES = 96  # of paint.c, below its mark

WEIGHT = "Constant<value = float[{0}] {{{1}}}>()"


def weight(count):
    return WEIGHT.format(count, ", ".join(str((i * 7 % 13 - 6) / 8) for i in range(count)))


def reshaped(name, *dims):
    count = 1
    for size in dims:
        count *= size
    shape = ", ".join(str(size) for size in dims)
    return f"{name}f = {weight(count)} {name}d = Constant<value_ints=[{shape}]>() {name} = Reshape({name}f, {name}d)"


TEXTS = {
    "convolutions": f"""g (float[1,3,12,12] x) => (float[1,4] y) {{
        {reshaped("w", 8, 3, 3, 3)} {reshaped("v", 8, 1, 3, 3)} {reshaped("u", 8, 4)}
        a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) c = Conv<group=8>(b, v) d = GlobalAveragePool(c)
        e = Flatten(d) y = MatMul(e, u) }}""",
    "attention": """g (float[2,9,16] q, float[2,16,9] k, float[2,9,16] v) => (float[2,9,16] y) {
        s = MatMul(q, k) p = Softmax<axis=-1>(s) y = MatMul(p, v) }""",
    "top_k": """g (float[5,40] x) => (float[5,3] y, int64[5,3] i) {
        k = Constant<value_ints=[3]>() y, i = TopK<axis=1>(x, k) }""",
    "lstm": f"""g (float[4,2,6] x) => (float[4,1,2,5] y) {{
        {reshaped("w", 1, 20, 6)} {reshaped("r", 1, 20, 5)} y = LSTM<hidden_size=5>(x, w, r) }}""",
    "integers": """g (int8[3,7] x, int8[7,5] w) => (int32[3,5] y) { y = MatMulInteger(x, w) }""",
    "resize": """g (float[1,2,5,6] x) => (float[1,2,o,p] y) {
        s = Constant<value_floats=[1.0,1.0,2.0,1.5]>() y = Resize<mode="cubic">(x, , s) }""",
    "rows_of_16": """g (float[64,16] x, float[16] s, float[16] b) => (float[64,16] y) {
        y = LayerNormalization<axis=-1>(x, s, b) }""",
    "neighbours": "g (float[2,17,8,8] x) => (float[2,17,8,8] y) { y = LRN<size=5>(x) }",
    "rows_of_f16": """g (float16[256,4] x) => (float16[256,4] y) { y = Softmax<axis=-1>(x) }""",
    "functions": "g (double[40] x) => (double[40] y) { a = Sin(x) b = Pow(a, x) c = Mod<fmod=1>(b, x) y = Tanh(c) }",
    "looked_up": """g (int64[6] i) => (float[6,4] y) {
        t = Constant<value_floats=[0.0,1.0,2.0,3.0,4.0,5.0,6.0,7.0]>() d = Constant<value_ints=[2,4]>()
        r = Reshape(t, d) y = Gather(r, i) }""",
}  # fmt: skip


def run(command, folder=None, codes=(0,)):
    done = subprocess.run(command, capture_output=True, timeout=900, cwd=folder, text=True,
                          env={**os.environ, "LD_BIND_NOW": "1", "CCACHE_DISABLE": "1"})  # fmt: skip
    if done.returncode not in codes:
        said = (done.stderr + done.stdout)[-600:]
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{said}")
    return done.stdout


# ---- what gcc says ----


def read_graph(path):
    """Bytes of each function's frame, and the functions that it calls."""
    frames, calls = {}, {}
    with open(path) as file:
        for line in file:
            node = re.match(r'node: \{ title: "([^"]*)" label: ".*\\n(\d+) bytes', line)
            edge = re.match(r'edge: \{ sourcename: "([^"]*)" targetname: "([^"]*)"', line)
            if node is not None:
                frames[node[1]] = int(node[2])
            elif edge is not None:
                calls.setdefault(edge[1], set()).add(edge[2])
    return frames, calls


def worst_path(frames, calls, function):
    """A pointer of model_init's or model_run's leads to an entry point's steps, if to anything here."""
    if function == "__indirect_call":
        return max((worst_path(frames, calls, f) for f in frames if f.endswith("_steps")), default=0)
    called = calls.get(function, set())
    if function.endswith("_steps") or "ul_run_" in function:
        called = called - {"__indirect_call"}
    deepest = max((worst_path(frames, calls, f) for f in called), default=0)
    return deepest + (frames[function] + CALL_BYTES if function in frames else 0)


def gcc_bytes(folder):
    frames, calls = read_graph(os.path.join(folder, "model.ci"))
    return max(worst_path(frames, calls, f) for f in frames if f in ENTRIES)


# ---- one model ----


def painted_bytes(folder, is_rom, objects, libraries):
    """Below model_init and model_run, by what a run wrote."""
    run(["gcc", "-std=gnu99", "-O1", "-I.", "-o", "paint", os.path.join(HERE, "paint.c"), "model.o",
         *objects, "-Wl,-z,now", *libraries, "-lm", "-lpthread"], folder)  # fmt: skip
    words = run(["./paint", *([] if is_rom else ["weights.bin"])], folder).split()
    return max(int(word) for word in words) - HARNESS_BYTES


def section_bytes(folder):
    kept = (".text", ".rodata", ".data.rel.ro")
    total = 0
    for line in run(["size", "-A", "model.o"], folder).splitlines():
        words = line.split()
        if len(words) == 3 and words[0].startswith(kept):
            total += int(words[1])
    return total


def emitted(ullage, model, options, folder):
    path = os.path.join(folder, "plan.json")
    run([ullage, "compile", model, *options, "--emit", folder])
    run([ullage, "plan", model, *options, "--json", path])
    with open(path) as file:
        plan = json.load(file)
    with open(os.path.join(folder, "model.h")) as file:
        header = int(re.search(r"STACK_BYTES UINT64_C\((\d+)\)", file.read())[1])
    return plan, header


def check_model(ullage, name, model, options, work):
    """The stack on target c, by both levels of optimisation."""
    is_rom = "rom" in options
    folder = os.path.join(work, name)
    plan, bound = emitted(ullage, model, ["--target", "c", *options], folder)
    if is_rom and plan["process"]["stacks"] != bound:
        raise RuntimeError(f"{name}: MODEL_STACK_BYTES {bound}, plan.json {plan['process']['stacks']}")
    measured, code = 0, 0
    objects = ["rom.o"] if is_rom else []
    for flags in FLAGS:
        run(["make", "-B", f"CFLAGS={flags} -fcallgraph-info=su", "model.o", *objects], folder)
        measured = max(measured, gcc_bytes(folder), painted_bytes(folder, is_rom, objects, []))
        if flags == "-O2":
            code = section_bytes(folder)
    print(f"{name}: stack {bound}, taken {measured}; code {plan.get('flash', {}).get('code')}, "
          f"of model.o {code}", flush=True)  # fmt: skip
    if not measured <= bound <= max(2 * measured, measured + 4096):
        raise RuntimeError(f"{name}: the stack takes {measured} bytes, planned are {bound}")
    if is_rom and plan["flash"]["code"] < code:
        raise RuntimeError(f"{name}: model.o has {code} bytes, planned are {plan['flash']['code']}")


def check_library(ullage, name, model, work):
    """The stack on target cpu, by one thread: what oneDNN takes is within what the plan leaves for it."""
    folder = os.path.join(work, name + "_cpu")
    plan, bound = emitted(ullage, model, ["--target", "cpu", "--threads", "1", *ROM], folder)
    run(["make", "CFLAGS=-O2", "model.o", "rom.o"], folder)
    sources = [f for f in ("ul_dnnl.c", "ul_nbits.c", "ul_posts.c", "ul_winograd.c") if os.path.exists(os.path.join(folder, f))]
    flags = ["-fno-strict-aliasing", "-fopenmp", *sources, "-ldnnl"] if sources else []
    measured = painted_bytes(folder, True, ["rom.o"], flags)
    print(f"{name}: target cpu, stack {bound}, taken {measured}", flush=True)
    if measured > bound or plan["process"]["stacks"] != bound:
        raise RuntimeError(f"{name}: the stack takes {measured} bytes, planned are {bound}")


def check_callless(ullage, name, model, work):
    """The stack on target cpu, at the smallest budget, where kernels of ours do all: no library is counted."""
    folder = os.path.join(work, name + "_callless")
    options = ["--target", "cpu", "--threads", "1", *ROM]
    whole = json.loads(run([ullage, "plan", model, *options, "--json", "-"]))
    rows = json.loads(run([ullage, "plan", model, *options, "--sweep", "--json", "-"]))["plans"]
    budget = min(row["process_bytes"] for row in rows)
    plan, bound = emitted(ullage, model, [*options, "--budget", str(budget)], folder)
    if set(plan["steps"]["implementation"]) != {"ullage"} or plan["process_bytes"] != budget:
        raise RuntimeError(f"{name}: {plan['process_bytes']} of {budget} bytes, {plan['steps']['implementation']}")
    run(["make", "CFLAGS=-O2 -fcallgraph-info=su", "model.o", "rom.o"], folder)
    sources = [f for f in ("ul_nbits.c", "ul_posts.c", "ul_winograd.c") if os.path.exists(os.path.join(folder, f))]
    measured = max(gcc_bytes(folder), painted_bytes(folder, True, ["rom.o"], sources))
    print(f"{name}: target cpu without calls, stack {bound}, taken {measured}", flush=True)
    if not measured <= bound <= max(2 * measured, measured + 4096) or plan["process"]["stacks"] != bound:
        raise RuntimeError(f"{name}: the stack takes {measured} bytes, planned are {bound}")
    has_calls = set(whole["steps"]["implementation"]) != {"ullage"}
    if ("oneDNN" in whole["ranges"]["name"]) != has_calls or "oneDNN" in plan["ranges"]["name"]:
        raise RuntimeError(f"{name}: the library's state is there where no call is")


# ---- which models ----


def check_peak_list(ullage, work):
    """The caller's buffers are on no list of what lives in the buffer."""
    model = os.path.join(work, "peak.onnx")
    save(parser.parse_model(HEAD + TEXTS["attention"]), model)
    text = run([ullage, "plan", model, "--advice", "off", "--target", "c", *ROM])
    listed = text[text.index("there live"):text.index("Proven")]  # fmt: skip
    if re.search(r"\d  [qkvy] ", listed):
        raise RuntimeError(f"the caller's buffers are on the list:\n{listed}")


def network(name, work):
    model = os.path.join(work, name + ".onnx")
    run([sys.executable, MAKE, name, "--small", "-o", model])
    return model


def trainer(work):
    model = parser.parse_model(HEAD + "g (float[4,6] x) => (float[4,3] y) { y = MatMul(x, w) }")
    model.graph.initializer.append(helper.make_tensor("w", 1, [6, 3], [0.5] * 18))
    save(model, os.path.join(work, "trainer.onnx"))
    return os.path.join(work, "trainer.onnx")


def few(ullage, work):
    check_peak_list(ullage, work)
    for name, text in TEXTS.items():
        model = os.path.join(work, name + ".onnx")
        save(parser.parse_model(HEAD + text), model)
        yield name, lambda name=name, model=model: check_model(ullage, name, model, ROM, work)
    for name in ("convolutions", "attention"):
        model = os.path.join(work, name + ".onnx")
        yield name, lambda name=name, model=model: check_callless(ullage, name, model, work)
    model = trainer(work)
    yield "trainer", lambda model=model: check_model(ullage, "trainer", model, ["--train"], work)
    model = network("densenet121", work)  # whose local arrays gcc once stored to unaligned
    yield "densenet121", lambda model=model: check_library(ullage, "densenet121", model, work)
    for name in ("convolutions", "lstm"):
        model = os.path.join(work, name + ".onnx")
        yield name, lambda name=name, model=model: check_library(ullage, name, model, work)
        more = name + "_in_buffer"
        yield more, lambda more=more, model=model: check_model(ullage, more, model, [], work)


def every(ullage, work):
    yield from few(ullage, work)
    for name in run([sys.executable, MAKE, "--list"]).split():
        model = network(name, work)
        yield name, lambda name=name, model=model: check_model(ullage, name, model, ROM, work)
        yield name, lambda name=name, model=model: check_library(ullage, name, model, work)
    nodes = run([os.path.join(ROOT, "tests", "ops", "data.sh")]).strip()
    for model in sorted(glob.glob(os.path.join(nodes, "*", "model.onnx")))[::20]:
        name = os.path.basename(os.path.dirname(model))
        plan = subprocess.run([ullage, "plan", model, "--advice", "off", "--target", "c", *ROM], capture_output=True)
        if plan.returncode == 0:
            yield name, lambda name=name, model=model: check_model(ullage, name, model, ROM, work)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("what", choices=["few", "all"])
    arguments.add_argument("ullage")
    options = arguments.parse_args()
    failed, count = [], 0
    with tempfile.TemporaryDirectory() as work:
        for name, check in {"few": few, "all": every}[options.what](options.ullage, work):
            count += 1
            try:
                check()
            except RuntimeError as error:
                failed.append(name)
                print(f"FAIL: {error}", flush=True)
    if failed:
        print(f"stack.py: {len(failed)} of {count}: {' '.join(failed)}")
        sys.exit(1)


if __name__ == "__main__":
    main()
