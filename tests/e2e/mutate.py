#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans that were changed at random: the checker takes none that changes what a model computes.

    mutate.py ULLAGE [--target c] [--seed 1] [--plans 50] [--mutations 2000] [--at PLAN:MUTATION]

Plans of ONNX's own operator tests and of small models made here, with and without a budget, are
changed one to three times each: two ranges made one in place, first and last positions moved, the
positions of steps exchanged, other alternatives, other spaces, offsets and sizes moved, ranges and
steps left out or said twice, dead and empty outputs given a place. `check` refuses each with exit 6
or 2, or takes it; it is asked for many at once. What it takes is written with --emit; different programs are compiled once each
and run on the inputs that the plan's own program was run on: the outputs are the same, bit for bit,
or within rounding where another implementation was chosen. Every mutation depends on --seed, the
plan's number and its own number alone; --at repeats one and prints it.
Exit: 0 ok, 1 a plan was taken that computes something else, 77 a package is missing.
"""

import argparse
import concurrent.futures
import glob
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    from onnx import parser
except ImportError as error:
    print(f"mutate.py: skipped: {error}")
    sys.exit(77)

BATCH = 250  # plans that one process checks
NODES = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "node")
HEAD = '<ir_version: 8, opset_import: ["": 17]>'

# Those with several outputs, with outputs that overwrite inputs, with nested graphs, with scratch.
NODE_TESTS = """momentum momentum_multiple nesterov_momentum adagrad adagrad_multiple adam adam_multiple
batchnorm_example_training_mode batchnorm_epsilon_training_mode batchnorm_example layer_normalization_2d_axis1
layer_normalization_3d_axis1_epsilon split_equal_parts_1d_opset18 split_variable_parts_2d_opset18 lstm_defaults
lstm_with_peepholes gru_defaults gru_seq_length simple_rnn_defaults rnn_seq_length if loop11 scan9_sum
scan_sum top_k top_k_smallest unique_sorted_with_axis maxpool_with_argmax_2d_precomputed_pads
convtranspose_dilations conv_with_strides_padding basic_conv_with_padding gemm_all_attributes matmul_4d
dropout_default_mask_ratio softmax_large_number softmax_axis_1 logsoftmax_axis_1 reduce_log_sum_exp_default_axes_keepdims_random
cumsum_2d_axis_1 scatter_elements_with_axis gathernd_example_int32 resize_upsample_sizes_nearest
nonmaxsuppression_identical_boxes einsum_batch_matmul attention_4d attention_4d_with_past_and_present
rotary_embedding rms_normalization_2d_axis1 group_normalization_epsilon instancenorm_example
concat_2d_axis_1 where_example mish_expanded gelu_tanh_1_expanded affine_grid_2d dynamicquantizelinear
layer_normalization_2d_axis0_expanded layer_normalization_4d_axis2_expanded
nllloss_NCd1d2_with_weight_reduction_mean_expanded nllloss_NCd1_weight_ii_expanded
sce_mean_log_prob_expanded sce_NCd1d2d3_sum_weight_high_ii_log_prob_expanded""".split()

MODELS = {
    "residuals": """
residuals (float[8,32] x, float[32,32] a, float[32,32] b) => (float[8,32] y, float[8,32] side) {
  p = MatMul (x, a)
  q = Relu (p)
  r = Add (q, x)
  s = MatMul (r, b)
  side = Tanh (s)
  t = Add (s, r)
  u = Softmax (t)
  y = Sub (u, x)
}""",
    "fan": """
fan (float[64] x) => (float[64] y, float[64] z) {
  a = Exp (x)
  b = Neg (x)
  c = Sigmoid (a)
  d = CumSum <reverse = 1> (b, zero)
  e = Mul (c, d)
  f = CumSum (e, zero)
  z = Add (f, a)
  y = Mul (f, d)
  zero = Constant <value = int64 {0}> ()
}""",
    "pieces": """
pieces (float[6,40] x) => (float[6,40] y) {
  a, b, c, d = Split <axis = 1, num_outputs = 4> (x)
  e = Softmax (b)
  f = Softmax (a)
  g = Concat <axis = 1> (e, c, f, d)
  h = Softmax <axis = 0> (g)
  i = Transpose <perm = [1, 0]> (h)
  j = Softmax (i)
  y = Transpose <perm = [1, 0]> (j)
}""",
}


def random_model(seed):
    """Ten operators that do not all become one, on values that several of them read."""
    pick = random.Random(seed)
    values, nodes = ["x", "w"], []
    for i in range(10):
        a, b = pick.choice(values[-4:]), pick.choice(values)
        nodes.append(f"v{i} = " + pick.choice([
            f"Softmax <axis = {pick.randrange(2)}> ({a})", f"CumSum ({a}, zero)", f"Tanh ({a})",
            f"Add ({a}, {b})", f"Mul ({a}, {b})", f"MatMul ({a}, {b})"]))
        values.append(f"v{i}")
    outputs = ", ".join(f"float[16,16] v{i}" for i in (9, pick.randrange(4, 9)))
    return (f"random{seed} (float[16,16] x, float[16,16] w) => ({outputs}) {{\n"
            "  zero = Constant <value = int64 {0}> ()\n  " + "\n  ".join(nodes) + "\n}")


MODELS.update((f"random{seed}", random_model(seed)) for seed in range(6))


def known_inputs(path):
    """--const for inputs that shapes or loops may depend on, from the model's test data."""
    consts = []
    for i, value in enumerate(onnx.load(path).graph.input):
        data = os.path.join(os.path.dirname(path), "test_data_set_0", f"input_{i}.pb")
        kinds = (onnx.TensorProto.INT64, onnx.TensorProto.BOOL)
        if value.type.tensor_type.elem_type in kinds and os.path.exists(data):
            consts += ["--const", f"{value.name}={data}"]
    return consts


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **more)


class Subject:
    """A model, the plan that ullage made, and what its program computes."""

    def __init__(self, options, name, path, budget):
        self.name, self.path, self.options = name, path, options
        self.folder = tempfile.mkdtemp(dir=options.work)
        self.plan_path = os.path.join(self.folder, "plan.json")
        command = [options.ullage, "plan", path, "--target", options.target, "--json", self.plan_path]
        command += ["--budget", budget] if budget else []
        self.consts = []
        if run(command).returncode == 3:
            self.consts = known_inputs(path)
            run(command + self.consts)
        self.works = os.path.exists(self.plan_path)
        if self.works:
            with open(self.plan_path, encoding="utf-8") as file:
                self.text = file.read()
            self.plan = json.loads(self.text)
            self.works = len(self.plan["steps"]["step"]) > 0
        if self.works:
            self.outputs = self.compute(self.plan_path, "original")
            self.works = self.outputs is not None

    def source(self, plan_path, name):
        """The emitted program's folder and its hash, or None where --emit fails."""
        folder = os.path.join(self.folder, name + ".source")
        done = run([self.options.ullage, "compile", self.path, "--plan", plan_path, "--emit", folder,
                    "--cflags", "-O1", *self.consts])
        if done.returncode != 0:
            print(f"{self.name}: checked, but not emitted: {done.stderr.strip()}")
            return None, None
        text = hashlib.sha256()
        for file in ("model.c", "model.h"):
            with open(os.path.join(folder, file), encoding="utf-8") as opened:
                lines = [line for line in opened if "sha256" not in line]
                text.update("".join(lines).encode())
        return folder, text.hexdigest()

    def run_source(self, folder, name):
        """The outputs of the program, as arrays by name; None where it fails."""
        results = os.path.join(self.folder, name + ".out")
        for built in glob.glob(os.path.join(self.options.runtime, "ul_*.o")):
            shutil.copy(built, folder)
        made = run(["make", "-s", "-C", folder, "program"])
        if not os.path.isdir(self.options.runtime):  # the same in every program
            os.mkdir(self.options.runtime)
            for built in glob.glob(os.path.join(folder, "ul_*.o")):
                shutil.copy(built, self.options.runtime)
        done = made if made.returncode != 0 else run(
            [os.path.join(folder, "program"), "--random", "7", "--output-dir", results])
        if done.returncode not in (0, 2):
            print(f"{self.name}: {name}: {done.stderr.strip()[:300]}")
            return None
        outputs = {file: numpy.load(os.path.join(results, file)) for file in os.listdir(results)}
        shutil.rmtree(results)
        shutil.rmtree(folder)
        return outputs

    def compute(self, plan_path, name):
        folder, digest = self.source(plan_path, name)
        self.known = {digest: True}
        return None if folder is None else self.run_source(folder, name)

    def same(self, outputs, exactly):
        if outputs is None or outputs.keys() != self.outputs.keys():
            return False
        for name, array in self.outputs.items():
            if exactly or array.dtype.kind not in "fc":
                if array.tobytes() != outputs[name].tobytes():
                    return False
            elif not numpy.allclose(array, outputs[name], 1e-3, 1e-5, equal_nan=True):
                return False
        return True


# ---- changes ----

def columns(table):
    return [key for key, value in table.items() if isinstance(value, list)]


def in_place(plan, pick):
    """A range takes over another's place, as if its step wrote in place."""
    ranges = plan["ranges"]
    to, of = pick.sample(range(len(ranges["value"])), 2)
    ranges["offset_bytes"][to] = ranges["offset_bytes"][of]
    if pick.random() < 0.8:
        ranges["alias"][to] = of
    if pick.random() < 0.7:
        ranges["end"][of] = ranges["begin"][to] + 1
    return f"range {to} takes over {of}"


def bounds(plan, pick):
    ranges = plan["ranges"]
    at = pick.randrange(len(ranges["value"]))
    key = pick.choice(["begin", "end"])
    ranges[key][at] = max(0, ranges[key][at] + pick.choice([-2, -1, -1, 1, 1, 2]))
    return f"{key} of range {at} becomes {ranges[key][at]}"


def offsets(plan, pick):
    ranges = plan["ranges"]
    at, of = (pick.randrange(len(ranges["value"])) for _ in range(2))
    step = pick.choice([-64, 64, -4096, 4096, None])
    ranges["offset_bytes"][at] = (ranges["offset_bytes"][of] if step is None else
                                  max(0, ranges["offset_bytes"][at] + step))
    return f"offset of range {at} becomes {ranges['offset_bytes'][at]}"


def sizes(plan, pick):
    ranges = plan["ranges"]
    at = pick.randrange(len(ranges["value"]))
    ranges["size_bytes"][at] = max(0, ranges["size_bytes"][at] + pick.choice([-64, -1, 64, 4]))
    return f"size of range {at} becomes {ranges['size_bytes'][at]}"


def empty(plan, pick):
    """A range of no bytes, or of no time."""
    ranges = plan["ranges"]
    at = pick.randrange(len(ranges["value"]))
    if pick.random() < 0.5:
        ranges["size_bytes"][at] = 0
        return f"range {at} has no bytes"
    ranges["end"][at] = ranges["begin"][at]
    return f"range {at} has no time"


def spaces(plan, pick):
    ranges = plan["ranges"]
    at = pick.randrange(len(ranges["value"]))
    ranges["space"][at] = pick.randrange(len(plan["spaces"]["name"]) + 1)
    return f"range {at} lies in space {ranges['space'][at]}"


def order(plan, pick):
    """Two steps exchange their positions; most often the ranges keep theirs."""
    steps = plan["steps"]
    a, b = pick.sample(range(len(steps["step"])), 2)
    for key in columns(steps):
        steps[key][a], steps[key][b] = steps[key][b], steps[key][a]
    if pick.random() < 0.5:
        ranges = plan["ranges"]
        for i in range(len(ranges["value"])):
            length = ranges["end"][i] - ranges["begin"][i]
            if ranges["begin"][i] in (a, b):
                ranges["begin"][i] = b if ranges["begin"][i] == a else a
                ranges["end"][i] = ranges["begin"][i] + max(1, length)
    return f"steps at {a} and {b} change places"


def alternatives(plan, pick):
    steps = plan["steps"]
    at = pick.randrange(len(steps["step"]))
    steps["alternative"][at] = pick.randrange(3)
    return f"alternative {steps['alternative'][at]} at {at}"


def pick_row(plan, pick):
    name = pick.choice(["steps", "ranges"])
    return name, plan[name], pick.randrange(len(plan[name]["step" if name == "steps" else "value"]))


def leave_out(plan, pick):
    name, table, at = pick_row(plan, pick)
    for key in columns(table):
        del table[key][at]
    return f"row {at} of the {name} left out"


def repeat(plan, pick):
    name, table, at = pick_row(plan, pick)
    for key in columns(table):
        table[key].append(table[key][at])
    if pick.random() < 0.5:
        table["copy"][-1] += 1
    return f"row {at} of the {name} said twice"


def exchange(plan, pick):
    """Two ranges exchange one thing."""
    ranges = plan["ranges"]
    a, b = pick.sample(range(len(ranges["value"])), 2)
    key = pick.choice(["offset_bytes", "value", "copy", "begin", "end", "alias", "space"])
    ranges[key][a], ranges[key][b] = ranges[key][b], ranges[key][a]
    return f"ranges {a} and {b} exchange {key}"


CHANGES = [in_place] * 4 + [bounds] * 3 + [offsets] * 2 + [order] * 2 + [
    sizes, empty, spaces, alternatives, leave_out, repeat, exchange]


def reserve(plan):
    """What a careful forger would write: the bytes that the ranges reach to."""
    ranges = plan["ranges"]
    ends = [o + s for o, s, space in zip(ranges["offset_bytes"], ranges["size_bytes"],
                                         ranges["space"]) if space == 0]
    reached = max(ends, default=0)
    if reached > plan["reserved_bytes"]:
        plan["reserved_bytes"] = plan["spaces"]["reserved_bytes"][0] = reached


def mutate(subject, number, mutation):
    pick = random.Random(f"{subject.options.seed}:{number}:{mutation}")
    plan = json.loads(subject.text)
    said = []
    for _ in range(pick.choice([1, 1, 2, 3])):
        try:
            said.append(pick.choice(CHANGES)(plan, pick))
        except (IndexError, ValueError, TypeError):
            pass # an earlier change left nothing to do this to
    if pick.random() < 0.7:
        reserve(plan)
    return plan, "; ".join(str(s) for s in said)


def differs(subject, plan):
    return any(plan[key] != subject.plan[key] for key in ("steps", "ranges", "spaces"))


def check(subject, names):
    """The plans of these names that are taken, and what went wrong: {name: text}."""
    done = run([subject.options.ullage, "check", *subject.consts, subject.path, *names], cwd=subject.folder)
    if done.returncode in (0, 2, 6):
        taken = {line.split(":")[0] for line in done.stdout.splitlines()}
        return names if len(names) == 1 and taken else taken, {}
    if len(names) == 1:
        return [], {names[0]: f"check ends with {done.returncode}: {done.stderr.strip()[:300]}"}
    taken, wrong = set(), {}
    for name in names:
        alone = check(subject, [name])
        taken.update(alone[0])
        wrong.update(alone[1])
    return taken, wrong


def judge_taken(subject, name, plan):
    """What a plan is that was taken: "same" or "new" as a program, or what is wrong."""
    folder, digest = subject.source(os.path.join(subject.folder, name), name)
    if folder is None:
        return "accepted, but not compiled"
    if digest in subject.known:
        shutil.rmtree(folder)
        return "same"
    subject.known[digest] = True
    exactly = plan["steps"]["alternative"] == subject.plan["steps"]["alternative"]
    if not subject.same(subject.run_source(folder, name), exactly):
        return f"accepted, and computes something else ({os.path.join(subject.folder, name)})"
    return "new"


def judge(subject, number, mutations):
    """What became of the mutations that are not refused: "same", "new", or what is wrong."""
    tried = {}
    for mutation in mutations:
        plan, said = mutate(subject, number, mutation)
        if differs(subject, plan):
            name = f"m{mutation}.json"
            tried[name] = plan, f"{subject.name} --at {number}:{mutation}: {said}: "
            with open(os.path.join(subject.folder, name), "w", encoding="utf-8") as file:
                file.write(json.dumps(plan))
    if not tried:
        return []
    taken, wrong = check(subject, list(tried))
    verdicts = [tried[name][1] + text for name, text in wrong.items()]
    for name in tried:
        verdict = judge_taken(subject, name, tried[name][0]) if name in taken else None
        if verdict in (None, "same", "new"):
            os.remove(os.path.join(subject.folder, name))
        if verdict is not None:
            verdicts.append(verdict if verdict in ("same", "new") else tried[name][1] + verdict)
    return verdicts


# ---- all of them ----

def subjects(options):
    wanted = [(name, os.path.join(options.work, name + ".onnx")) for name in MODELS]
    for name, path in wanted:
        onnx.save(parser.parse_model(HEAD + MODELS[name]), path)
    for name in NODE_TESTS:
        wanted.append((name, os.path.join(NODES, "test_" + name, "model.onnx")))
    count = 0
    for name, path in wanted:
        for budget in ([None, "1"] if name in MODELS else [None]):
            if count == options.plans:
                return
            subject = Subject(options, name + (" --budget" if budget else ""), path, budget)
            if subject.works:
                yield count, subject
                count += 1


def main():
    arguments = argparse.ArgumentParser(description=__doc__,
                                        formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("ullage")
    arguments.add_argument("--target", default="c")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--plans", type=int, default=50)
    arguments.add_argument("--mutations", type=int, default=2000)
    arguments.add_argument("--at")
    options = arguments.parse_args()
    options.ullage = os.path.realpath(options.ullage)
    options.work = tempfile.mkdtemp(prefix="mutate.")
    options.runtime = os.path.join(options.work, "runtime")
    at = [int(part) for part in options.at.split(":")] if options.at else None
    totals = {"tried": 0, "same": 0, "new": 0}
    wrong = []
    plans = 0
    for number, subject in subjects(options):
        plans += 1
        if at is not None and number != at[0]:
            continue
        batches = [range(first, min(first + BATCH, options.mutations))
                   for first in range(0, options.mutations, BATCH)]
        if at:
            batches = [[at[1]]]
            print(mutate(subject, number, at[1])[1])
        totals["tried"] += sum(map(len, batches))
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for verdicts in pool.map(lambda b, s=subject, n=number: judge(s, n, b), batches):
                for verdict in verdicts:
                    if verdict in ("same", "new"):
                        totals[verdict] += 1
                    else:
                        wrong.append(verdict)
                        print("FAIL", verdict, flush=True)
        if not wrong:
            shutil.rmtree(subject.folder)
    if not wrong:
        shutil.rmtree(options.work)
    print(f"{plans} plans, {totals['tried']} mutations with seed {options.seed}: "
          f"{totals['same'] + totals['new'] + len(wrong)} accepted, of which {totals['new']} are "
          f"other programs that compute the same, {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


main()
