#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ullage.Trainer: steps, evaluation, parameters, checkpoints, export.

usage: trainer.py [NAME...] with $ULLAGE, or installed (cases.py)."""

import os
import subprocess
import sys
import tempfile

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
    for name, value in (("seed", -1), ("lr", -1.0), ("lr", float("nan"))):
        cases.raises(ValueError, lambda n=name, v=value: setattr(trainer, n, v), "expected")


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
