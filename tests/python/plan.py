#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ullage.plan: plans, sweeps, options as keywords, and each error by its class.

usage: plan.py [NAME...] with $ULLAGE, or installed (cases.py)."""

import copy
import json
import os
import pickle
import subprocess
import sys
import tempfile

import cases

import ullage

MODEL = os.path.join(cases.DIGITS, "digits.onnx")
C = {"target": "c", "dims": {"N": 1}}


def command(*words):
    return subprocess.run(
        [ullage.program(), *words], capture_output=True, text=True, check=False, cwd=cases.ROOT
    )


def test_import_needs_nothing():
    """What importing costs: no numpy, no subprocess."""
    code = (
        "import sys; before = set(sys.modules); import ullage; "
        "print(sorted(set(sys.modules) - before))"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
    loaded = json.loads(done.stdout.replace("'", '"'))
    assert "numpy" not in loaded and "subprocess" not in loaded, loaded
    assert len(loaded) < 10, loaded


def test_plan_is_that_of_the_command_line():
    """The plan is that of a library as Python calls it; with the command line's defaults, of a program."""
    words = ["plan", MODEL, "--target", "c", "--dim", "N=1"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.json")
        program = {"library": False, "io": "arena", "no_donate": False}
        for options, more in (
            (program, []),
            ({}, ["--library", "--io", "caller", "--no-donate"]),
        ):
            plan = ullage.plan(MODEL, **C, **options)
            command(*words, *more, "--json", path)
            with open(path, encoding="utf-8") as file:
                assert plan.to_json() == file.read()
            done = command(*words, *more, "--advice", "off")
            assert str(plan) == command("report", path).stdout.rstrip("\n")
            # the rest says that whoever reads a file has not checked it
            assert str(plan).split("\nProven")[0] == done.stdout.split("\nProven")[0]
        plan.to_json(os.path.join(folder, "again.json"))
        assert repr(ullage.Plan.load(os.path.join(folder, "again.json"))) == str(plan)
    assert plan.reserved_bytes == sum(plan.rows.values()) == 178048
    assert plan.fits and plan.budget_bytes is None and plan.shortfall_bytes == 0
    assert len(plan.steps) == 10 and plan.steps[0]["op"] == "Conv+Relu"
    assert max(r["offset_bytes"] + r["size_bytes"] for r in plan.ranges) <= plan.reserved_bytes
    cases.raises(AttributeError, lambda: plan.bytes_reserved, "reserved_bytes")


def test_models_as_bytes_and_protos():
    import onnx

    with open(MODEL, "rb") as file:
        data = file.read()
    for model in (data, bytearray(data), onnx.load(MODEL)):
        assert ullage.plan(model, **C).reserved_bytes == 178048
    cases.raises(ullage.UsageError, lambda: ullage.plan(3), "int")


def test_plans_are_copied_and_sent():
    plan = ullage.plan(MODEL, **C)
    for other in (copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        assert other.to_json() == plan.to_json() and other.rows == plan.rows


def test_reports():
    plan = ullage.plan(MODEL, **C)
    other = ullage.plan(MODEL, target="c", dims={"N": 2})
    assert plan.html().startswith("<!DOCTYPE html>") and "</html>" in plan.html()
    assert other.html(baseline=plan) != other.html()
    assert plan.csv().startswith("name,type,class,")
    assert plan.csv_steps().startswith("step,")
    json.loads(plan.trace())
    shown = plan._repr_html_()
    assert "<b>184.11 KiB = 188528 bytes</b>" in shown and "<b>digits.onnx</b>" in shown
    assert "this process for it <b>" in shown and "buffer 173.88 KiB = 178048 bytes." in shown
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.html")
        text = plan.html(path)
        with open(path, encoding="utf-8") as file:
            assert file.read() == text


def test_sizes_are_those_of_the_command_line():
    from ullage._plan import _exact

    for count, text in ((0, "0 bytes"), (1, "1 byte"), (64, "64 bytes"), (1023, "1023 bytes"),
                        (1024, "1.00 KiB = 1024 bytes"), (1 << 20, "1.00 MiB = 1048576 bytes"),
                        (2 << 30, "2048.00 MiB = 2147483648 bytes"),
                        (20 << 30, "20.00 GiB = 21474836480 bytes")):  # fmt: skip
        assert _exact(count) == text
    plan = ullage.plan(MODEL, target="c", dims={"N": 64})
    assert f"process {_exact(plan.process_bytes)}" in str(plan)
    assert f"buffer {_exact(plan.reserved_bytes)}" in str(plan)


def test_files_are_written_whole():
    """Or in place, where they are none; an error is one of ours."""
    plan = ullage.plan(MODEL, **C)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.json")
        plan.to_json(path)
        plan.to_json(path)
        assert os.listdir(folder) == ["plan.json"]
        for write in (plan.to_json, plan.csv, plan.html):
            missing = os.path.join(folder, "none", "x")
            cases.raises(ullage.FileError, lambda w=write, m=missing: w(m), "No such file")
        cases.raises(ullage.FileError, lambda: plan.to_json(folder), "Is a directory")
        os.symlink("plan.json", os.path.join(folder, "link"))
        os.truncate(path, 0)
        plan.to_json(os.path.join(folder, "link"))
        assert os.path.islink(os.path.join(folder, "link")) and os.path.getsize(path) > 0
        with open(os.path.join(folder, "gone"), "w+b") as file:
            os.unlink(file.name)
            os.symlink(f"/proc/self/fd/{file.fileno()}", os.path.join(folder, "descriptor"))
            plan.to_json(os.path.join(folder, "descriptor"))
            assert file.read(1) == b"{" and not [name for name in os.listdir(folder) if "gone" in name]
        os.symlink("circle", os.path.join(folder, "circle"))
        cases.raises(ullage.FileError, lambda: plan.to_json(os.path.join(folder, "circle")), "symbolic links")
    plan.to_json(os.devnull)
    assert not os.path.isfile(os.devnull)


def test_no_room_for_temporary_files():
    """What has no file of its own is not named by one; no room for one is an error of ours."""
    before = tempfile.tempdir
    tempfile.tempdir = os.path.join(os.sep, "none")
    try:
        cases.raises(ullage.FileError, lambda: ullage.plan(MODEL, **C), "/none", "$TMPDIR")
    finally:
        tempfile.tempdir = before
    error = cases.raises(ullage.InvalidModel, lambda: ullage.plan(b"garbage", **C))
    assert str(error).startswith("model.onnx: not a valid ONNX file")


def test_sweeps():
    sweep = ullage.plan(MODEL, sweep=True, target="c", dims={"N": [1, 2, 4]})
    assert [row["values"] for row in sweep] == [["1"], ["2"], ["4"]] and len(sweep) == 3
    assert sweep[0]["reserved_bytes"] == 178048
    assert "samples/s" in str(sweep) and "<pre>" in sweep._repr_html_()
    models = [MODEL, os.path.join(cases.DIGITS, "untrained.onnx")]
    assert len(ullage.plan(models, sweep=True, **C)) == 2
    cases.raises(ullage.UsageError, lambda: ullage.plan(models, **C), "sweep=True")


def test_does_not_fit():
    def small(**more):
        return ullage.plan(MODEL, budget=100 * 1024, budget_of="arena", **C, **more)

    error = cases.raises(
        ullage.DoesNotFit, small, "does not fit the budget", "The smallest budget known"
    )
    assert error.exit_code == 4 and not error.plan.fits
    assert error.budget_bytes == 102400
    assert error.needed_bytes == error.plan.reserved_bytes
    assert error.shortfall_bytes == error.needed_bytes - 102400 > 0
    assert error.smallest_budget_bytes == error.plan.smallest_budget_bytes
    fits = ullage.plan(MODEL, budget=error.smallest_budget_bytes, budget_of="arena", **C)
    assert fits.fits and fits.shortfall_bytes == 0
    plan = small(must_fit=False)
    assert not plan.fits and plan.shortfall_bytes == error.shortfall_bytes
    assert "73.88 KiB = 75648 bytes short of the budget of 100.00 KiB" in plan._repr_html_()


def test_errors_by_class():
    near = cases.raises(ullage.UsageError, lambda: ullage.plan(MODEL, bugdet=1), "mean budget")
    assert isinstance(near, (ullage.Error, ValueError)) and near.exit_code == 1
    for options, word in (
        ({"budget": "12parsecs"}, "expected a size"),
        ({"json": "x"}, "methods of Plan"),
        ({"stop_after": "fuse"}, "command line"),
        ({"link": {"a:x": "b:y"}}, "command line"),
        ({"prefix": "a"}, "--shared"),
        ({"keep_inputs": "yes"}, "True or False"),
        ({"order": "alphabetical"}, "expected best, file, greedy"),
        ({"dim": object()}, "dim"),
        ({"seed": {}}, "seed"),
        ({"const": {"x": "a\0b"}}, ""),
    ):
        cases.raises(ullage.UsageError, lambda o=options: ullage.plan(MODEL, **{**C, **o}), word)
    cases.raises(ullage.InvalidModel, lambda: ullage.plan(b"garbage"), "not a valid ONNX file")
    array = os.path.join(cases.DIGITS, "train_x.npy")
    cases.raises(ullage.InvalidModel, lambda: ullage.plan(array), "an array of numpy (.npy)")
    cases.raises(
        ullage.UsageError, lambda: ullage.plan(MODEL), "give --dim N=SIZE", 'dims={"NAME": SIZE}'
    )
    cases.raises(ullage.Unsupported, lambda: ullage.plan(MODEL, target="cudda"), "cuda?")
    missing = cases.raises(ullage.FileError, lambda: ullage.plan("none.onnx"), "No such file")
    assert isinstance(missing, OSError)
    cases.raises(ullage.InvalidModel, lambda: ullage.Plan("{}"), "ullage-plan")
    cases.raises(ullage.InvalidModel, lambda: ullage.Plan("garbage"), "no plan.json")
    part = '{"format": "ullage-plan", "model": "m", "target": "c", "reserved_bytes": 1}'
    cases.raises(ullage.InvalidModel, lambda: ullage.Plan(part), "no peak_step")
    cases.raises(ullage.FileError, lambda: ullage.Plan.load("none.json"), "No such file")
    cases.raises(ullage.InvalidModel, lambda: ullage.Plan.load(sys.executable), "no text")


def test_options_of_every_kind():
    assert "budget" in ullage.options("plan") and "emit" in ullage.options("compile")
    cases.raises(ullage.UsageError, lambda: ullage.options("plam"), "plan")

    def planned(**options):
        return dict(map(tuple, ullage.plan(MODEL, target="c", **options).options))

    assert planned(dim="N=2")["dim"] == "N=2"
    assert planned(shape={"x": (2, 1, 8, 8)})["shape"] == "x=2,1,8,8"
    assert planned(dims={"N": 1}, weights="rom", keep_inputs=True)["weights"] == "rom"
    assert "keep-inputs" not in planned(dims={"N": 1}, keep_inputs=False)
    assert planned(dims={"N": 1}, outputs=["/Flatten_output_0"])["output"] == "/Flatten_output_0"
    train = planned(dims={"N": 8}, train=True, train_mode=True, output="/fc/Gemm_output_0",
                    optimizer="adam", lr=0.01, freeze=["stem*"], state_bits=8)  # fmt: skip
    assert train["optimizer"] == "adam" and train["lr"] == "0.01" and train["freeze"] == "stem*"
    plan = ullage.plan(MODEL, **C)
    import numpy

    assert planned(dims={"N": numpy.int64(2)}, seed=numpy.array(3))["seed"] == "3"
    assert planned(shape={"x": numpy.array([2, 1, 8, 8])})["shape"] == "x=2,1,8,8"
    again = ullage.plan(MODEL, target="c", plan=plan)
    assert again.ranges == plan.ranges


def test_data_beside_a_model():
    """What is handed over as bytes has none."""
    import onnx

    model = onnx.load(MODEL)
    onnx.external_data_helper.convert_model_to_external_data(
        model, location="data.bin", size_threshold=0
    )
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        onnx.save(model, path)
        assert ullage.plan(path, **C).reserved_bytes == 178048
        apart = onnx.load(path, load_external_data=False)
        cases.raises(ullage.FileError, lambda: ullage.plan(apart, **C), "data.bin", "by its path")


def test_arrays_as_files():
    import numpy
    import onnx
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6]),
         helper.make_tensor_value_info("shape", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    plan = ullage.plan(model, target="c", consts={"shape": numpy.array([2, 3])})
    assert any(r["type"] == "f32[2,3]" for r in plan.ranges) or plan.reserved_bytes >= 24
    data = {"x": numpy.random.default_rng(0).random((2, 1, 8, 8), numpy.float32)}
    quantized = ullage.plan(MODEL, quantize_activations=data, **C)
    assert quantized.reserved_bytes < ullage.plan(MODEL, **C).reserved_bytes


def test_hostile_models():
    """None hurts this process; each is an error of ours."""
    with open(MODEL, "rb") as file:
        data = bytearray(file.read())
    for at in range(0, 400, 13):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        try:
            ullage.plan(damaged, **C)
        except (ullage.InvalidModel, ullage.Unsupported, ullage.FileError):
            pass
    cases.raises(ullage.InvalidModel, lambda: ullage.plan(bytes(data[: len(data) // 2]), **C))


def test_a_program_that_dies():
    """Its end by a signal, or without a word, is an error too."""
    with tempfile.TemporaryDirectory() as folder:
        full = 'echo "ullage: error: $TMPDIR/m.c: cannot write: No space left on device" >&2; exit 5'
        for text, word in (
            ("kill -SEGV $$", "signal 11"),
            ("exit 3", "failed"),
            ("echo hello", "is not the program ullage"),
            (f'[ "$1" = plan ] || exec {ullage.program()} "$@"; {full}', "$TMPDIR says"),
        ):
            path = os.path.join(folder, "fake")
            with open(path, "w", encoding="ascii") as file:
                file.write(f"#!/bin/sh\n{text}\n")
            os.chmod(path, 0o755)
            before = os.environ.get("ULLAGE")
            os.environ["ULLAGE"] = path
            try:
                cases.raises(ullage.Error, lambda: ullage.plan(MODEL), word)
            finally:
                os.environ.pop("ULLAGE")
                if before is not None:
                    os.environ["ULLAGE"] = before


def test_nothing_is_left_behind():
    with tempfile.TemporaryDirectory() as folder:
        before = tempfile.tempdir
        tempfile.tempdir = folder
        try:
            ullage.plan(MODEL, **C)
            cases.raises(ullage.InvalidModel, lambda: ullage.plan(b"garbage"))
            assert not os.listdir(folder), os.listdir(folder)
        finally:
            tempfile.tempdir = before


def test_the_command_line_comes_along():
    done = subprocess.run(
        [sys.executable, "-m", "ullage", "--version"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    assert done.stdout.split()[1] == ullage.__version__


def test_a_script_does_not_call_itself():
    """$ULLAGE that names the package's own script is an error, not an endless chain."""
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "ullage")
        with open(script, "w", encoding="utf-8") as file:
            file.write(f"#!{sys.executable}\nimport ullage.__main__ as m\nm.main()\n")
        os.chmod(script, 0o755)
        done = subprocess.run(
            [script, "--version"],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "ULLAGE": script},
            check=False,
            timeout=30,
        )
        assert done.returncode == 1 and "is this script" in done.stderr, done.stderr


if __name__ == "__main__":
    cases.run(globals())
