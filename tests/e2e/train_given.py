#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is given to `compile --train` and to trainers, and is not as they want it.

    train_given.py ULLAGE

Models, options and samples that nobody can train with are refused by name before anything runs;
labels of outputs that have samples and places in one dimension are read in their order.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import os
import subprocess
import sys
import tempfile

try:
    import numpy
    from onnx import TensorProto, helper, numpy_helper, save
except ImportError as error:
    print(f"train_given.py: skipped: {error}")
    sys.exit(77)

SAMPLES, BATCH, PLACES, WIDTH, CLASSES = 12, 4, 3, 5, 6
ullage = os.path.abspath(sys.argv[1])
failures = 0


def check(holds, text):
    global failures
    if not holds:
        failures += 1
        print(f"FAIL: {text}")


def run(*command, code=0, says=""):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    check(done.returncode == code and says in done.stderr,
          f"{' '.join(command)}: {done.returncode}, not {code} with '{says}'\n{done.stderr}")
    return done


def compile_model(name, *options, **expected):
    return run(ullage, "compile", f"{name}.onnx", "--train", "--target", "c", "--cflags", "-O1",
               "-o", f"./{name}", *options, **expected)


def make(name, nodes, inputs, shape, weights=None):
    draw = numpy.random.default_rng(1)
    weights = weights or {"w": draw.normal(size=(WIDTH, CLASSES)).astype(numpy.float32)}
    values = [helper.make_tensor_value_info(key, TensorProto.FLOAT, dims)
              for key, dims in inputs.items()]
    graph = helper.make_graph(
        nodes, name, values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(value, key) for key, value in weights.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
         f"{name}.onnx")


def product(x="x", y="y"):
    return helper.make_node("MatMul", [x, "w"], [y])


def check_places():
    """[samples, places, classes], and the same as [samples x places, classes]."""
    shape = [BATCH, PLACES, WIDTH]
    draw = numpy.random.default_rng(2)
    weights = {"w": draw.normal(size=(WIDTH, CLASSES)).astype(numpy.float32)}
    make("apart", [product()], {"x": shape}, [BATCH, PLACES, CLASSES], weights)
    make("flat", [product(y="p"), helper.make_node("Reshape", ["p", "flat"], ["y"])],
         {"x": shape}, [BATCH * PLACES, CLASSES],
         {**weights, "flat": numpy.array([-1, CLASSES])})
    numpy.save("x.npy", draw.normal(size=(SAMPLES, PLACES, WIDTH)).astype(numpy.float32))
    labels = draw.integers(0, CLASSES, (SAMPLES, PLACES)).astype(numpy.uint8)
    numpy.save("labels.npy", labels)
    numpy.save("columns.npy", labels[..., numpy.newaxis])
    numpy.save("rows.npy", labels.reshape(-1))
    compile_model("apart", "--class-axis", "-1")
    compile_model("flat")
    told = [run(f"./{name}", "--data", "x.npy", "--labels", labels, "--epochs", "2").stdout
            for name, labels in (("apart", "labels.npy"), ("flat", "labels.npy"),
                                 ("flat", "columns.npy"))]
    told = [[line.split(" right")[0] for line in text.splitlines()] for text in told]
    check(told[0] == told[1] == told[2] and len(told[0]) == 2, f"losses differ: {told}")
    run("./flat", "--data", "x.npy", "--labels", "rows.npy", "--epochs", "1", code=2,
        says="labels")


def check_inputs():
    """A dimension in front that counts no samples."""
    nodes = [helper.make_node("Mul", ["x", "s"], ["m"]), product("m")]
    make("shared", nodes, {"x": [BATCH, WIDTH], "s": [WIDTH]}, [BATCH, CLASSES])
    make("one", nodes, {"x": [BATCH, WIDTH], "s": [1]}, [BATCH, CLASSES])
    numpy.save("d.npy", numpy.ones((SAMPLES, WIDTH), numpy.float32))
    numpy.save("s.npy", numpy.ones(SAMPLES, numpy.float32))
    numpy.save("l.npy", numpy.zeros(SAMPLES, int))
    for name in ("shared", "one"):
        compile_model(name)
        run(f"./{name}", "--data", "d.npy", "--labels", "l.npy", "--input", "s=s.npy", "--epochs",
            "1", code=3, says="input 's' is float32 [")


def check_options():
    make("plain", [product()], {"x": [BATCH, WIDTH]}, [BATCH, CLASSES])
    compile_model("plain", "--donate", "y=x", code=1, says="--donate")
    compile_model("plain", "--weights", "rom", code=3, says="--weights rom")
    compile_model("plain", "--precision", "fp16", code=3, says="--precision amp-fp16")
    compile_model("plain", "--schedule", "cosine:99999999999999999999", code=1, says="--schedule")
    compile_model("plain", "--loss", "output:y", code=1, says='--loss: "y" is f32[4,6]')
    done = compile_model("plain", "--budget", "1", "--budget-of", "arena", code=4, says="smallest")
    check("--weights rom" not in done.stderr and "--precision bf16" in done.stderr, done.stderr)
    for values in ([[1.0] * CLASSES], [1.0, -1.0], [numpy.nan], [1, 2]):
        numpy.save("cw.npy", numpy.array(values))
        compile_model("plain", "--class-weights", "cw.npy", code=2, says="--class-weights")
    numpy.save("cw.npy", numpy.ones(CLASSES + 1))
    compile_model("plain", "--class-weights", "cw.npy", code=1, says="7 numbers for 6 classes")
    numpy.save("cw.npy", numpy.ones(CLASSES))  # in numpy's type, not the model's
    compile_model("plain", "--class-weights", "cw.npy")
    run(ullage, "verify", "plain.onnx", "--train", code=1, says="--train")


def check_parts():
    """Micro-batches of models whose batch cannot be cut."""
    make("plain", [product()], {"x": [BATCH, WIDTH]}, [BATCH, CLASSES])
    compile_model("plain", "--micro-batches", "3", code=1, says='first dimension of the input "x"')
    compile_model("plain", "--micro-batches", "2", "--clip-norm", "1", "--clip-mode", "twice",
                  code=1, says="--clip-mode twice")
    weights = {"w": numpy.ones((WIDTH, CLASSES), numpy.float32), "s": numpy.array([BATCH, -1])}
    make("fixed", [helper.make_node("Reshape", ["x", "s"], ["r"]), product("r")],
         {"x": [BATCH, WIDTH]}, [BATCH, CLASSES], weights)
    compile_model("fixed", "--micro-batches", "2", code=2, says="export it with a batch")


def check_dropout():
    nodes = [helper.make_node("Dropout", ["x"], ["d"]), product("d")]
    make("drop", nodes, {"x": [BATCH, WIDTH]}, [BATCH, CLASSES])
    compile_model("drop", code=1, says="--train-mode")
    compile_model("drop", "--train-mode")
    ways = [["--train-mode"], []]
    numpy.save("d.npy", numpy.ones((SAMPLES, WIDTH), numpy.float32))
    make("drop_not", [product()], {"x": [BATCH, WIDTH]}, [BATCH, CLASSES])
    for name, way in zip(("drop", "drop_not"), ways):
        compile_model(name, *way)
        run(f"./{name}", "--data", "d.npy", "--labels", "l.npy", "--steps", "1", "--metrics",
            f"{name}.csv")
    losses = [numpy.genfromtxt(f"{name}.csv", delimiter=",", names=True)["loss"]
              for name in ("drop", "drop_not")]
    check(losses[0] != losses[1], "--train-mode leaves Dropout as it was")


def check_noise():
    """Random tensors are drawn anew in each step, and the same by the same seed and step."""
    nodes = [product(y="p"), helper.make_node("RandomNormalLike", ["p"], ["n"]),
             helper.make_node("RandomUniform", [], ["u"], shape=[BATCH, CLASSES], high=0.5),
             helper.make_node("Add", ["p", "n"], ["s"]), helper.make_node("Mul", ["s", "u"], ["y"])]
    make("noise", nodes, {"x": [BATCH, WIDTH]}, [BATCH, CLASSES])
    compile_model("noise", "--lr", "0")
    numpy.save("d.npy", numpy.ones((SAMPLES, WIDTH), numpy.float32))
    numpy.save("l.npy", numpy.zeros(SAMPLES, int))
    losses = []
    for more in (["--seed", "1"], ["--seed", "1"], ["--seed", "2"]):
        run("./noise", "--data", "d.npy", "--labels", "l.npy", "--steps", "6", "--metrics", "n.csv", *more)
        losses.append(tuple(numpy.genfromtxt("n.csv", delimiter=",", names=True)["loss"]))
    check(losses[0] == losses[1] and losses[0] != losses[2], f"the seed does not decide: {losses}")
    check(len(set(losses[0] + losses[2])) == 12, f"steps draw the same: {losses}")
    run("./noise", "--guard", "--random", "1")


def check_listed():
    """What would be trained, what not, and why: `inspect --train`, and a line of `plan`."""
    draw = numpy.random.default_rng(3)
    weights = {"first": draw.normal(size=(WIDTH, WIDTH)), "table": draw.normal(size=(WIDTH, WIDTH)),
               "factor": numpy.array(2.0), "w": draw.normal(size=(WIDTH, CLASSES))}
    nodes = [helper.make_node("MatMul", ["x", "first"], ["a"]),
             helper.make_node("ArgMax", ["a"], ["i"], axis=1, keepdims=0),
             helper.make_node("Gather", ["table", "i"], ["g"]),
             helper.make_node("Mul", ["g", "factor"], ["m"]), product("m")]
    make("cut", nodes, {"x": [BATCH, WIDTH]}, [BATCH, CLASSES],
         {name: value.astype(numpy.float32) for name, value in weights.items()})
    text = run(ullage, "inspect", "cut.onnx", "--train", "--freeze", "table").stdout
    rows = [line.rsplit(maxsplit=2)[0].split('"') for line in text.splitlines() if '"' in line]
    roles = {name: role.strip() for role, name, _ in rows}
    check(roles == {"first": "no gradient", "table": "fixed", "factor": "one number",
                    "w": "trained"}, f"inspect --train says {text}")
    text = run(ullage, "plan", "cut.onnx", "--train").stdout
    check('leads to the loss from "first"' in text, f"plan says nothing of first: {text}")


def check_labels():
    """Integers where the loss takes floats; a batch that is ignored whole."""
    draw = numpy.random.default_rng(4)
    numpy.save("d.npy", draw.normal(size=(SAMPLES, WIDTH)).astype(numpy.float32))
    make("yes_no", [product()], {"x": [BATCH, WIDTH]}, [BATCH, CLASSES])
    compile_model("yes_no", "--loss", "bce")
    labels, saved = draw.integers(0, 2, (SAMPLES, CLASSES)), []
    for kind in ("float32", "int64", "uint8", "bool"):
        numpy.save("l.npy", labels.astype(kind))
        run("./yes_no", "--data", "d.npy", "--labels", "l.npy", "--epochs", "2", "--save", "c.npz")
        with open("c.npz", "rb") as file:
            saved.append(file.read())
    check(saved.count(saved[0]) == len(saved), "bce learns something else from integers")
    numpy.save("l.npy", labels.astype("float64"))
    run("./yes_no", "--data", "d.npy", "--labels", "l.npy", "--epochs", "1", code=2,
        says="needs float32, this file holds float64")
    labels = numpy.zeros(SAMPLES, int)
    labels[BATCH : 2 * BATCH] = -100
    numpy.save("l.npy", labels)
    compile_model("plain")
    run("./plain", "--data", "d.npy", "--labels", "l.npy", "--epochs", "1", "--no-shuffle", code=6,
        says="step 2: the loss is not a number, for all labels of its batch are ignored")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        check_places()
        check_inputs()
        check_options()
        check_parts()
        check_dropout()
        check_noise()
        check_listed()
        check_labels()
        os.chdir("/")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
