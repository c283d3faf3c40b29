#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ullage.Trainer: steps, evaluation, parameters, checkpoints, export.

usage: trainer.py [NAME...] with $ULLAGE, or installed (cases.py)."""

import os
import stat
import subprocess
import sys
import tempfile
import warnings

import cases

try:
    import numpy
    import onnx
    from onnx import TensorProto, helper
except ImportError as error:
    print(f"trainer.py: skipped: {error}")
    sys.exit(77)

import ullage

FAST = {"target": "c", "cflags": "-O0"}
DIGITS = {"dims": {"N": 32}, "train_mode": True, "output": "/fc/Gemm_output_0",
          "optimizer": "adamw", "lr": 0.01, "target": "c", "cflags": "-O1"}  # fmt: skip


def linear():
    """y = x w + b, from given parameters."""
    w = numpy.linspace(-1, 1, 6, dtype=numpy.float32).reshape(3, 2)
    b = numpy.array([0.5, -0.5], numpy.float32)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
        [onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(b, "b")])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def data(seed=0, count=4):
    random = numpy.random.default_rng(seed)
    return (random.standard_normal((count, 3)).astype(numpy.float32),
            random.standard_normal((count, 2)).astype(numpy.float32))  # fmt: skip


_trainers = {}


def regression():
    """Compiled once; each test begins with the parameters of the model."""
    if not _trainers:
        _trainers["r"] = ullage.Trainer(linear(), dims={"N": 4}, loss="mse", optimizer="sgd",
                                        lr=0.1, **FAST)  # fmt: skip
        _trainers["p"] = _trainers["r"].parameters()
    trainer = _trainers["r"]
    trainer.set_parameters(_trainers["p"])
    trainer.lr = 0.1
    return trainer


def test_a_step_is_that_of_numpy():
    trainer = regression()
    x, t = data()
    w, b = (trainer.parameters()[name] for name in ("w", "b"))
    for _ in range(3):
        error = x @ w + b - t
        loss = (error**2).mean()
        assert abs(trainer.step(x, t) - loss) < 1e-5
        w = w - 0.1 * 2 * x.T @ error / error.size
        b = b - 0.1 * 2 * error.sum(0) / error.size
        numpy.testing.assert_allclose(trainer.parameters()["w"], w, rtol=1e-4, atol=1e-6)
        numpy.testing.assert_allclose(trainer.parameters()["b"], b, rtol=1e-4, atol=1e-6)
    trainer.lr = 0.0
    before = trainer.parameters()["w"]
    trainer.step(x, t)
    assert (trainer.parameters()["w"] == before).all() and trainer.learning_rate == 0.0


def test_a_plan_that_was_made_before():
    options = {"dims": {"N": 4}, "loss": "mse", "optimizer": "sgd", "lr": 0.1}
    plan = ullage.plan(linear(), train=True, target="c", **options)
    trainer = ullage.Trainer(linear(), plan=plan, cflags="-O0", target="c", **options)
    assert trainer.arena_bytes == plan.reserved_bytes
    assert trainer.step(*data()) == regression().step(*data())


def test_evaluation_learns_nothing():
    trainer = regression()
    x, t = data()
    steps = trainer.step_count
    first = trainer.eval(x, t)
    assert trainer.eval(x, t) == first and first.correct is None and first.samples == 4
    assert abs(trainer.step(x, t) - first.loss) < 1e-6 and trainer.step_count == steps + 1


def test_what_it_says_of_itself():
    trainer = regression()
    assert [t.name for t in trainer.inputs] == ["x", trainer.inputs[1].name]
    assert trainer.batch_size == 4 and trainer.loss == "mse" and trainer.optimizer == "sgd"
    assert trainer.plan.reserved_bytes == trainer.arena_bytes
    assert "batches of 4" in repr(trainer)
    trainer.seed = 7
    assert trainer.seed == 7
    for name, value in (("seed", -1), ("seed", 1.5), ("seed", 2**53), ("lr", -1.0),
                        ("lr", float("nan")), ("lr", float("inf")), ("lr", 10**400)):  # fmt: skip
        cases.raises(ValueError, lambda n=name, v=value: setattr(trainer, n, v), "expected")
    for name, value in (("seed", None), ("lr", "0.1")):
        cases.raises(TypeError, lambda n=name, v=value: setattr(trainer, n, v), "expected")
    trainer.lr = numpy.float32(0.5)
    assert trainer.lr == 0.5 and trainer.seed == 7


def test_wrong_batches():
    trainer = regression()
    x, t = data()
    name = trainer.inputs[1].name
    assert trainer.step(x=x, **{name: t}) >= 0
    for call, kind, word in (
        (lambda: trainer.step(x), TypeError, "2 arrays"),
        (lambda: trainer.step(x, t, t), TypeError, "2 arrays"),
        (lambda: trainer.step(x, x=x), TypeError, "given twice"),
        (lambda: trainer.step(x, z=t), TypeError, "none of"),
        (lambda: trainer.step(x[:3], t), ValueError, "expected shape (4, 3)"),
        (lambda: trainer.step(x.astype(numpy.float64), t), TypeError, "float64"),
        (lambda: trainer.step(numpy.asfortranarray(x), t), TypeError, "contiguous"),
        (lambda: trainer.step(x.tolist(), t), TypeError, "list"),
        (lambda: trainer.set_parameters({"v": x}), ullage.InvalidModel, "no parameter 'v'"),
        (lambda: trainer.set_parameters({"w": x}), ullage.InvalidModel, "of shape (3, 2)"),
        (lambda: ullage.Trainer(linear(), train=False), ullage.UsageError, "always trains"),
        (lambda: ullage.Trainer(linear(), optimiser="sgd"), ullage.UsageError, "mean optimizer"),
        (lambda: ullage.Trainer(linear(), dims={"N": 4}, loss="mze", **FAST), ullage.Error, "mse"),
    ):
        cases.raises(kind, call, word)


def classifier(micro_batches=1, **more):
    """x w of three classes, by cross entropy; label 2 is ignored, and class 1 weighs 3 times."""
    w = numpy.linspace(-1, 1, 12, dtype=numpy.float32).reshape(4, 3)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 3])],
        [onnx.numpy_helper.from_array(w, "w")])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return ullage.Trainer(model, micro_batches=micro_batches, ignore_index=2,
                          class_weights=numpy.array([1, 3, 1], numpy.float64),
                          optimizer="sgd", lr=0.1, **FAST, **more)  # fmt: skip


def test_a_loss_that_is_not_finite():
    trainer = regression()
    x, t = data()
    x[2, 1] = numpy.nan
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert numpy.isnan(trainer.eval(x, t).loss)
    assert len(told) == 1 and "for sample 2 of input 'x' is not finite" in str(told[0].message)
    cases.raises(ullage.VerificationFailed, lambda: trainer.step(x, t),
                 "for sample 2 of input 'x' is not finite")  # fmt: skip
    trainer.set_parameters(_trainers["p"])  # what was lost comes back
    x, t = data()
    assert numpy.isfinite(trainer.step(x, t))
    wrong = {"b": numpy.array([0, numpy.nan], numpy.float32)}
    cases.raises(ullage.InvalidModel, lambda: trainer.set_parameters(wrong), "not finite")
    trainer.lr = 1e30
    trainer.step(x, t)
    cases.raises(ullage.VerificationFailed, lambda: [trainer.step(x, t) for _ in range(3)],
                 "a lower learning_rate may help")  # fmt: skip


def test_frozen_tensors():
    """They are constants, in no checkpoint; who sets one is told what to do."""
    frozen = ullage.Trainer(linear(), dims={"N": 4}, loss="mse", optimizer="adam", freeze="w*",
                            **FAST)  # fmt: skip
    x, t = data()
    frozen.step(x, t)
    assert set(frozen.parameters()) == {"b"}
    wrong = {"w": numpy.zeros((3, 2), numpy.float32)}
    cases.raises(ullage.InvalidModel, lambda: frozen.set_parameters(wrong), "'w' is frozen")
    wrong = {"v": numpy.zeros(2, numpy.float32)}
    cases.raises(ullage.InvalidModel, lambda: frozen.set_parameters(wrong), "no parameter 'v'")


def normed():
    """A product, and statistics of its batch."""
    net = linear()
    net.graph.node.append(helper.make_node(
        "BatchNormalization", ["y", "s", "o", "m", "v"], ["n", "m1", "v1"], training_mode=1))
    for name, value in (("s", 1), ("o", 0), ("m", 0), ("v", 1)):
        array = numpy.full(2, value, numpy.float32)
        net.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    net.graph.output[0].name = "n"
    return net


def test_a_step_that_is_skipped():
    trainer = ullage.Trainer(normed(), dims={"N": 4}, loss="mse", optimizer="adam",
                             loss_scale=1024, micro_batches=2, **FAST)  # fmt: skip
    x, t = data()
    trainer.step(x, t)
    before = trainer.parameters(with_state=True)
    x[3, 0] = numpy.inf
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trainer.step(x, t)
    assert len(told) == 1 and "step 2 is skipped, for sample 3 of input 'x'" in str(told[0].message)
    after = trainer.parameters(with_state=True)
    changed = {name for name in after if (after[name] != before[name]).any()}
    assert changed == {"loss/scale", "loss/growth_tracker"}, changed
    for name, number, says in (("v", -1, "below 0"), ("w/exp_avg_sq", -1e-9, "below 0"),
                               ("loss/scale", 0, "no loss scale")):  # fmt: skip
        wrong = {name: numpy.full_like(after[name], number)}
        cases.raises(ullage.InvalidModel, lambda w=wrong: trainer.set_parameters(w), says)


def test_arrays_that_say_what_they_are_not():
    class Liar(numpy.ndarray):
        shape = property(lambda self: (4, 3))
        dtype = property(lambda self: numpy.dtype(numpy.float32))

    trainer = regression()
    x, t = data()
    small = numpy.zeros((1, 3), numpy.float32).view(Liar)
    cases.raises(ValueError, lambda: trainer.step(small, t), "not (1, 3)")
    wrong = {"w": numpy.zeros(2, numpy.float32).view(Liar)}
    cases.raises(ullage.InvalidModel, lambda: trainer.set_parameters(wrong), "of shape")
    other = numpy.zeros((4, 3), numpy.float64).view(Liar)
    cases.raises(TypeError, lambda: trainer.step(other, t), "float64")
    honest = numpy.asfortranarray(x).T.copy().T.copy().view(type("Kind", (numpy.ndarray,), {}))
    assert trainer.step(honest, t) > 0


def test_evaluation_in_micro_batches():
    """The loss is the mean over the labels that count, wherever they are."""
    x = numpy.random.default_rng(3).standard_normal((8, 4)).astype(numpy.float32)
    whole, parts = classifier(), classifier(4)
    for labels in ([0, 1, 2, 2, 2, 2, 2, 0], [0, 2, 1, 2, 1, 1, 0, 0], [1] * 8):
        labels = numpy.array(labels)
        wanted, found = whole.eval(x, labels), parts.eval(x, labels)
        assert abs(wanted.loss - found.loss) < 1e-6, (wanted, found)
        assert wanted.correct == found.correct
        assert abs(whole.step(x, labels) - parts.step(x, labels)) < 1e-6
    ignored = numpy.full(8, 2)
    assert numpy.isnan(whole.eval(x, ignored).loss) and numpy.isnan(parts.eval(x, ignored).loss)


def test_labels():
    """Labels may be any integers, except for what is no label of the loss, or no class."""
    trainer = classifier()
    x = numpy.zeros((8, 4), numpy.float32)
    right = numpy.array([0, 1, 2, 0, 1, 2, 0, 1])
    losses = {trainer.eval(x, right.astype(kind)).loss
              for kind in "bBhHiIlLqQ"} | {trainer.eval(x, right.astype(">i4")).loss}  # fmt: skip
    assert len(losses) == 1
    before = trainer.parameters()["w"]
    for kind, value in ((numpy.uint64, 2**63 + 1), (numpy.uint64, 2**64 - 1), (numpy.int64, 3),
                        (numpy.int64, -1), (numpy.int64, 2**32)):  # fmt: skip
        wrong = right.astype(kind)
        wrong[5] = value
        for call in (trainer.step, trainer.eval):
            cases.raises(ValueError, lambda: call(x, wrong), f" {value} of sample 5")
    cases.raises(TypeError, lambda: trainer.step(x, right.astype(numpy.float32)), "float32")
    masked = numpy.ma.masked_array(right, right > 1)
    cases.raises(TypeError, lambda: trainer.step(x, masked), "x.filled(value)")
    cases.raises(TypeError, lambda: trainer.step(numpy.ma.masked_array(x), right), "x.filled")
    cases.raises(
        TypeError,
        lambda: trainer.set_parameters({"w": numpy.ma.masked_array(before)}),
        "x.filled(value)",
    )
    cases.raises(ValueError, lambda: trainer.step(x, numpy.full(8, 2)), "all labels")
    assert (trainer.parameters()["w"] == before).all() and trainer.step_count == 0


def test_checkpoints():
    trainer = regression()
    x, t = data()
    trainer.step(x, t)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "c.npz")
        trainer.save(path)
        assert os.listdir(folder) == ["c.npz"]
        step, seen = trainer.step_count, [trainer.step(x, t) for _ in range(3)]
        trainer.lr = 5.0
        trainer.load(path)
        assert trainer.step_count == step and trainer.lr == 0.1
        assert [trainer.step(x, t) for _ in range(3)] == seen
        with open(path, "rb") as file:
            whole = file.read()
        before = trainer.parameters()
        for damaged in (whole[:100], b"", whole[: len(whole) // 2], bytes(len(whole))):
            with open(path, "wb") as file:
                file.write(damaged)
            cases.raises(ullage.InvalidModel, lambda: trainer.load(path), "no checkpoint")
        cases.raises(ullage.FileError, lambda: trainer.load(path + ".none"), "No such file")
        cases.raises(ullage.FileError, lambda: trainer.save(os.path.join(folder, "a", "b.npz")))
        numpy.savez(path, w=before["w"])
        cases.raises(ullage.InvalidModel, lambda: trainer.load(path, parameters_only=True), "'b'")
        numpy.savez(path, **before)
        cases.raises(ullage.InvalidModel, lambda: trainer.load(path), "'optimizer'")
        trainer.load(path, parameters_only=True)
        for name, array in trainer.parameters().items():
            assert (array == before[name]).all()


def test_exported_models_have_the_parameters():
    trainer = regression()
    trainer.step(*data())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trained.onnx")
        trainer.export(path)
        found = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}
        for name, array in trainer.parameters().items():
            assert (found[name] == array).all()


class CommandLine:
    """A trainer of the command line of `linear`, on samples of the folder."""

    def __init__(self, folder, x, t, words):
        self._folder = folder
        self._run = [self.at("t"), "--data", self.at("x.npy"), "--labels", self.at("t.npy")]
        onnx.save(linear(), self.at("m.onnx"))
        numpy.save(self.at("x.npy"), x)
        numpy.save(self.at("t.npy"), t)
        subprocess.run([ullage.program(), "compile", self.at("m.onnx"), "--train", *words,
                        "-o", self.at("t")], check=True, capture_output=True)  # fmt: skip

    def at(self, name):
        return os.path.join(self._folder, name)

    def losses(self, steps, *options):
        """The losses of the steps up to that one; they end in c.npz."""
        if os.path.exists(self.at("m.csv")):
            os.unlink(self.at("m.csv"))  # a training that goes on would add to it
        subprocess.run([*self._run, "--steps", str(steps), "--save", self.at("c.npz"),
                        "--metrics", self.at("m.csv"), *options], check=True,
                       capture_output=True)  # fmt: skip
        with open(self.at("m.csv"), encoding="ascii") as file:
            return [numpy.float32(line.split(",")[2]) for line in file.readlines()[1:]]


def test_checkpoints_go_both_ways():
    """Trainers of the command line and of Python go on from each other's, with the same bits of
    losses, in the order of samples that either knows."""
    x, t = data(count=100)  # an epoch of three batches, and samples that fill none
    options = {"loss": "mse", "optimizer": "adamw", "lr": 0.1, **FAST}
    with tempfile.TemporaryDirectory() as folder:
        words = [f"--{name}={value}" for name, value in options.items()]
        program = CommandLine(folder, x, t, [*words, "--dim=N=32"])
        trainer = ullage.Trainer(linear(), dims={"N": 32}, path=program.at("t.so"), **options)
        other = ullage.load(program.at("t.so"))

        def losses(of, count, shuffle=None):
            found = []
            for _ in range(count):
                places = of.next_samples(100, shuffle)
                found.append(numpy.float32(of.step(x[places], t[places])))
            return found

        for shuffle, words in ((True, []), (False, ["--no-shuffle"])):
            whole = program.losses(8, *words)
            assert program.losses(5, *words) == whole[:5]
            trainer.load(program.at("c.npz"))
            assert losses(trainer, 1, shuffle) == whole[5:6]
            trainer.save(program.at("p.npz"))
            assert program.losses(8, "--resume", program.at("p.npz"), *words) == whole[6:]
            other.load(program.at("p.npz"))
            assert other.step_count == 6 and losses(other, 2) == whole[6:]
            os.rename(program.at("p.npz"), program.at(f"{shuffle}.npz"))
        words = ["--resume", program.at("True.npz"), "--no-shuffle"]
        cases.raises(subprocess.CalledProcessError, lambda: program.losses(8, *words))
        cases.raises(ValueError, lambda: other.next_samples(99), "of 100")
        trainer.step(x[:32], t[:32])  # of samples in an order that it does not know
        trainer.save(program.at("own.npz"))
        seen = program.losses(9, "--resume", program.at("own.npz"), "--no-shuffle")
        assert seen == losses(trainer, 2, False)
        cases.raises(ValueError, lambda: other.next_samples(31), "of 100")
        cases.raises(ValueError, lambda: regression().next_samples(3), "too few")


def test_checkpoints_of_other_batches():
    """A training goes on after the samples that its epoch has taken, and so does what it saves."""
    x, t = data(count=100)
    large, small = (ullage.Trainer(linear(), dims={"N": count}, loss="mse", optimizer="sgd",
                                   **FAST) for count in (32, 16))  # fmt: skip
    for _ in range(4):  # three of them are an epoch
        places = large.next_samples(100)
        large.step(x[places], t[places])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "c.npz")
        large.save(path)
        following = large.next_samples(100)
        for half in (following[:16], following[16:]):
            small.load(path)
            places = small.next_samples(100)
            assert small.step_count >= 4 and (places == half).all()
            small.step(x[places], t[places])
            small.save(path)
        large.load(path)
        assert large.step_count == 6 and (large.next_samples(100)[:4] != following[:4]).any()
        large.load(path)
        with numpy.load(path) as entries:
            assert entries["order_step"] == 6 + 4


def test_checkpoints_in_place():
    """Nothing takes the place of what is no file."""
    trainer = regression()
    with tempfile.TemporaryDirectory() as folder:
        cases.raises(ullage.FileError, lambda: trainer.load(folder), "Is a directory")
        cases.raises(ullage.FileError, lambda: trainer.save(folder), "Is a directory")
    trainer.save(os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        os.chdir(folder)
        try:
            trainer.save("-")
            trainer.export("-m")
            assert sorted(os.listdir(".")) == ["-", "-m"]
            trainer.load("-")
        finally:
            os.chdir(before)


def digits():
    x = numpy.load(os.path.join(cases.DIGITS, "train_x.npy"))
    return x, numpy.load(os.path.join(cases.DIGITS, "train_y.npy"))


def test_the_digits_beside_the_command_line():
    """An epoch has the bits of the command line's trainer; each reads the other's checkpoint; what
    is exported finds the digits in onnxruntime."""
    try:
        import onnxruntime
    except ImportError as error:
        raise cases.Skipped(error) from error
    model = os.path.join(cases.DIGITS, "untrained.onnx")
    x, y = digits()
    x, y = x[:320], y[:320]
    with tempfile.TemporaryDirectory() as folder:

        def at(name):
            return os.path.join(folder, name)

        words = ["--dim=N=32", "--train", "--train-mode", "--output=/fc/Gemm_output_0",
                 "--optimizer=adamw", "--lr=0.01", "--target=c", "--cflags=-O1"]  # fmt: skip
        subprocess.run([ullage.program(), "compile", model, *words, "-o", at("t")], check=True,
                       capture_output=True)  # fmt: skip
        numpy.save(at("x.npy"), x)
        numpy.save(at("y.npy"), y)
        run = [at("t"), "--data", at("x.npy"), "--labels", at("y.npy"), "--no-shuffle"]
        subprocess.run([*run, "--epochs", "1", "--save", at("c.npz")], check=True,
                       capture_output=True)  # fmt: skip
        trainer = ullage.Trainer(model, path=at("t.so"), **DIGITS)
        for i in range(0, 320, 32):
            trainer.step(x[i : i + 32], y[i : i + 32].astype(numpy.int32))
        with numpy.load(at("c.npz")) as theirs:
            state = trainer.parameters(with_state=True)
            assert set(theirs.files) == set(state) | {"step", "learning_rate", "generator",
                                                      "optimizer"}  # fmt: skip
            for name, array in state.items():
                assert array.tobytes() == theirs[name].tobytes(), name
        other = ullage.load(at("t.so"))
        other.load(at("c.npz"))
        assert other.step_count == 10
        assert other.step(x[:32], y[:32]) == trainer.step(x[:32], y[:32])
        cases.raises(ullage.UsageError, lambda: other.export(at("o.onnx")), "give the model")
        trainer.save(at("mine.npz"))
        subprocess.run([*run, "--steps", "1", "--init", at("mine.npz")], check=True,
                       capture_output=True)  # fmt: skip
        for _ in range(4):
            for i in range(0, 320, 32):
                trainer.step(x[i : i + 32], y[i : i + 32])
        right = sum(trainer.eval(x[i : i + 32], y[i : i + 32]).correct for i in range(0, 320, 32))
        assert right >= 0.95 * 320, right
        trainer.export(at("trained.onnx"))
        session = onnxruntime.InferenceSession(at("trained.onnx"))
        scores = session.run(None, {"x": x})[0]
        assert (scores.argmax(1) == y).sum() >= 0.95 * 320


def test_micro_batches_and_16_bits():
    x, y = digits()
    plain = {k: v for k, v in DIGITS.items() if k != "optimizer"}
    model = os.path.join(cases.DIGITS, "untrained.onnx")
    trainer = ullage.Trainer(model, **plain, optimizer="sgd", micro_batches=4, precision="bf16",
                             master="bf16-stochastic")  # fmt: skip
    assert trainer.batch_size == 32 and trainer.micro_batches == 4
    first = trainer.eval(x[:32], y[:32])
    losses = [trainer.step(x[:32], y[:32]) for _ in range(10)]
    assert losses[-1] < losses[0] and trainer.eval(x[:32], y[:32]).loss < first.loss
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "c.npz")
        trainer.save(path)
        seen = [trainer.step(x[:32], y[:32]) for _ in range(2)]
        trainer.load(path)
        assert [trainer.step(x[:32], y[:32]) for _ in range(2)] == seen
        with numpy.load(path) as entries:
            assert entries["fc.weight"].dtype == numpy.float32


def test_factors_beside_weights_of_few_bits():
    """What a checkpoint has to say of them, so that export finds the weights."""
    w = numpy.random.default_rng(3).standard_normal((64, 64)).astype(numpy.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 64])],
        [onnx.numpy_helper.from_array(w, "w")])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    trainer = ullage.Trainer(model, loss="mse", lora="4:*", lora_alpha=16, quantize=["int8:*"],
                             **FAST)  # fmt: skip
    assert sorted(trainer.parameters()) == ["w/lora_A", "w/lora_B"]
    x = numpy.random.default_rng(4).standard_normal((4, 64)).astype(numpy.float32)
    losses = [trainer.step(x, numpy.zeros_like(x)) for _ in range(3)]
    assert losses[2] < losses[0]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "c.npz")
        trainer.save(path)
        with numpy.load(path) as entries:
            assert float(entries["lora_alpha"]) == 16
            assert entries["quantize"].tobytes().rstrip(b"\0") == b"int8:*"
        with numpy.load(path) as entries:
            other = {**entries, "lora_alpha": numpy.float64(2)}
        wrong = os.path.join(folder, "wrong.npz")
        numpy.savez(wrong, **other)
        cases.raises(ullage.InvalidModel, lambda: trainer.load(wrong), "lora_alpha 2.0")
        trainer.load(path)
        merged = os.path.join(folder, "m.onnx")
        trainer.export(merged)
        found = onnx.numpy_helper.to_array(onnx.load(merged).graph.initializer[0])
        factors = trainer.parameters()
        added = factors["w/lora_A"] @ factors["w/lora_B"] * 16 / 4
        assert numpy.abs(found - added - w).max() < numpy.abs(w).max() / 100


if __name__ == "__main__":
    cases.run(globals())
