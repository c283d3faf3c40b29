#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command line of programs that train, on the hand-written classifier of trainer/.

Usage: train_cli_test.py BUILD_DIR   (which holds the programs; CMakeLists.txt names them)
"""

import array
import csv
import io
import math
import os
import pty
import random
import re
import resource
import signal
import struct
import subprocess
import tempfile
import threading
import unittest
import zipfile

from cli_test import npy, program, read_npy, run, stderr

SAMPLES, PIXELS, CLASSES, BATCH = 200, 64, 10, 16
EPOCH = SAMPLES // BATCH


def make_samples(count=SAMPLES, seed=1):
    """Images of ten classes, each a pattern of its own with noise, and their labels."""
    draw = random.Random(seed)
    patterns = [[draw.random() for _ in range(PIXELS)] for _ in range(CLASSES)]
    labels = [i * 7 % CLASSES for i in range(count)]
    images = array.array("f")
    for label in labels:
        images.extend(value + draw.gauss(0, 0.1) for value in patterns[label])
    return images, labels


def write(path, data):
    with open(path, "wb") as out:
        out.write(data)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def image_file(images):
    return npy("<f4", (len(images) // PIXELS, PIXELS), images.tobytes())


def label_file(labels, code="q", descr="<i8"):
    return npy(descr, (len(labels),), struct.pack(f"<{len(labels)}{code}", *labels))


def entries(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {
            name.removesuffix(".npy"): read_npy(archive.read(name)) for name in archive.namelist()
        }


def rows(path):
    with open(path, encoding="ascii") as file:
        return list(csv.DictReader(file))


class Train(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.before = os.getcwd()
        cls.folder = tempfile.TemporaryDirectory()
        os.chdir(cls.folder.name)
        cls.images, cls.labels = make_samples()
        write("x.npy", image_file(cls.images))
        write("y.npy", label_file(cls.labels))

    @classmethod
    def tearDownClass(cls):
        os.chdir(cls.before)
        cls.folder.cleanup()

    def train(self, *arguments, name="trainer", data="x.npy", labels="y.npy", code=0):
        return run(name, "--data", data, "--labels", labels, *arguments, code=code)

    def refuse(self, code, *arguments, **options):
        return self.train(*arguments, code=code, **options).stderr.decode()

    def test_learns(self):
        out = self.train("--epochs", "4", "--metrics", "m.csv", "--save", "c.npz").stdout.decode()
        lines = out.splitlines()
        self.assertEqual(len(lines), 4)
        self.assertIn(f"epoch 4, step {4 * EPOCH}: loss 0.", lines[3])
        self.assertIn("100.00 % right", lines[3])
        steps = rows("m.csv")
        self.assertEqual([int(row["step"]) for row in steps], list(range(1, 4 * EPOCH + 1)))
        self.assertEqual([int(row["epoch"]) for row in steps[EPOCH - 1 : EPOCH + 1]], [1, 2])
        self.assertEqual(list(steps[0]), "step epoch loss lr samples_per_second".split())
        self.assertAlmostEqual(float(steps[0]["loss"]), math.log(10), places=5)
        self.assertEqual(
            [float(row["lr"]) for row in steps[:5]], [0.0125, 0.025, 0.0375, 0.05, 0.05]
        )
        self.assertLess(float(steps[-1]["loss"]), 0.1)
        got = entries("c.npz")
        self.assertEqual(got["W"][:2], ("<f4", (PIXELS, CLASSES)))
        self.assertEqual(got["b/momentum"][:2], ("<f4", (CLASSES,)))
        self.assertEqual(got["step"], ("<i8", (), struct.pack("<q", 4 * EPOCH)))
        self.assertEqual(got["generator"][2], struct.pack("<4Q", 0, 1, SAMPLES, BATCH))

    def test_digits_of_losses(self):
        self.train("--steps", "2", "--metrics", "f.csv")
        x = npy("<f8", (SAMPLES, PIXELS), array.array("d", self.images).tobytes())
        write("x64.npy", x)
        self.train("--steps", "2", "--metrics", "d.csv", name="trainer_double", data="x64.npy")
        single, double = (rows(path)[1]["loss"] for path in ("f.csv", "d.csv"))
        exact = struct.unpack("<f", struct.pack("<f", float(single)))[0]
        self.assertEqual(single, f"{exact:.9g}")
        self.assertEqual(double, f"{float(double):.17g}")
        self.assertGreater(len(double), 15)
        self.assertAlmostEqual(float(single), float(double), places=5)

    def test_order(self):
        """In the order of the file, each step's first loss is that of its samples; shuffled, each
        epoch has another order, which the seed says."""
        losses = []
        for name, options in [
            ("a", ["--no-shuffle"]),
            ("b", []),
            ("c", ["--seed", "1"]),
            ("d", []),
        ]:
            self.train("--epochs", "1", "--lr", "0", "--metrics", f"{name}.csv", *options)
            self.train("--epochs", "2", "--metrics", f"{name}.csv", *options)
            losses.append([row["loss"] for row in rows(f"{name}.csv")])
        self.assertEqual(losses[1], losses[3])
        self.assertNotEqual(losses[0], losses[1])
        self.assertNotEqual(losses[1], losses[2])
        write("half.npy", image_file(self.images[: BATCH * PIXELS] * 2))
        write("halfy.npy", label_file(self.labels[:BATCH] * 2))
        self.train(
            "--epochs",
            "1",
            "--lr",
            "0",
            "--no-shuffle",
            "--metrics",
            "h.csv",
            data="half.npy",
            labels="halfy.npy",
        )
        self.assertEqual(rows("h.csv")[0]["loss"], rows("h.csv")[1]["loss"])

    def check_resumed(self, name, cut, total):
        self.train(
            "--steps",
            str(total),
            "--save",
            "whole.npz",
            "--seed",
            "5",
            "--lr",
            "0.02",
            "--metrics",
            "whole.csv",
            name=name,
        )
        self.train(
            "--steps",
            str(cut),
            "--save",
            "part.npz",
            "--seed",
            "5",
            "--lr",
            "0.02",
            "--metrics",
            "part.csv",
            name=name,
        )
        self.train(
            "--steps",
            str(total),
            "--resume",
            "part.npz",
            "--save",
            "rest.npz",
            "--metrics",
            "part.csv",
            name=name,
        )
        self.assertEqual(read("whole.npz"), read("rest.npz"))
        keys = ("step", "epoch", "loss", "lr")
        whole, parts = (
            [[row[k] for k in keys] for row in rows(f"{n}.csv")] for n in ("whole", "part")
        )
        self.assertEqual(whole, parts)

    def test_resumed_equals_uninterrupted(self):
        self.check_resumed("trainer", 3, 30)
        self.check_resumed("trainer", EPOCH, 2 * EPOCH)
        self.check_resumed("trainer", EPOCH + 5, EPOCH + 6)
        self.check_resumed("trainer_micro", 7, 14)

    def test_evaluation(self):
        """Nothing is learned of what is held out, and all of it counts, however it is batched."""
        images, labels = make_samples(SAMPLES + 45)  # of the same patterns
        write("vx.npy", image_file(images[SAMPLES * PIXELS :]))
        write("vy.npy", label_file(labels[SAMPLES:], "b", "|i1"))
        out = self.train("--epochs", "8", "--save", "v.npz", "--val", "vx.npy", "vy.npy").stdout
        self.assertRegex(
            out.decode().splitlines()[-1], r"; held out: loss 0\.\d+, 100\.00 % right$"
        )
        self.train("--epochs", "8", "--save", "w.npz")
        self.assertEqual(read("v.npz"), read("w.npz"))
        losses = []
        for name, count in [("a", SAMPLES), ("b", 32)]:  # each once, and 16 times
            write("e.npy", image_file(self.images[: count * PIXELS] * (SAMPLES * 4 // count)))
            write("ey.npy", label_file(self.labels[:count] * (SAMPLES * 4 // count)))
            out = self.train(
                *("--steps", "1", "--lr", "0", "--no-shuffle", "--init", "v.npz"),
                *("--metrics", "e.csv", "--val", "e.npy", "ey.npy"),
            ).stdout.decode()
            losses.append((float(rows("e.csv")[0]["loss"]), out.split("held out: ")[1]))
        self.assertEqual(losses[0][0], losses[1][0])
        self.assertNotEqual(losses[0][1], losses[1][1])
        write("e.npy", image_file(self.images[: BATCH * PIXELS] * 3))
        write("ey.npy", label_file(self.labels[:BATCH] * 3))
        out = self.train(
            *("--steps", "1", "--lr", "0", "--no-shuffle", "--init", "v.npz"),
            *("--val", "e.npy", "ey.npy"),
        ).stdout.decode()
        loss = re.findall("loss ([0-9.e-]+)", out)
        self.assertEqual(loss[0], loss[1])
        write("ey.npy", label_file([10] * BATCH * 3))
        self.assertIn(
            "ey.npy: the label 10 of sample 0",
            self.refuse(2, "--epochs", "1", "--val", "e.npy", "ey.npy"),
        )
        self.assertIn(
            "they must be as many", self.refuse(2, "--epochs", "1", "--val", "e.npy", "y.npy")
        )
        for more in ([], ["--seed", "1"]):
            text = self.refuse(1, "--epochs", "1", "--val", "e.npy", *more)
            self.assertIn("--val e.npy: its labels are missing", text)

    def test_pad(self):
        pad = ["--last", "pad"]
        self.train("--epochs", "2", *pad, "--save", "pad.npz", "--metrics", "pad.csv")
        self.assertEqual(len(rows("pad.csv")), 2 * (EPOCH + 1))
        self.assertEqual(
            entries("pad.npz")["generator"][2], struct.pack("<4Q", 0, 3, SAMPLES, BATCH)
        )
        self.train("--steps", "5", *pad, "--save", "part.npz")
        self.train("--epochs", "2", *pad, "--resume", "part.npz", "--save", "rest.npz")
        self.assertEqual(read("pad.npz"), read("rest.npz"))
        text = self.refuse(2, "--epochs", "2", "--resume", "part.npz")
        self.assertIn("with --last pad", text)
        # Filling counts nothing: whatever the batch is filled with, its loss is that of the five.
        write("five.npy", image_file(self.images[: 5 * PIXELS]))
        write("fivey.npy", label_file(self.labels[:5]))
        five = {"data": "five.npy", "labels": "fivey.npy"}
        more = ["--no-shuffle", "--steps", "3"]
        self.train(*more, *pad, "--metrics", "a.csv", "--save", "a.npz", **five)
        write("five.npy", image_file(self.images[: BATCH * PIXELS]))
        write("fivey.npy", label_file(self.labels[:5] + [-1] * (BATCH - 5)))
        self.train(*more, "--metrics", "b.csv", "--save", "b.npz", **five)
        losses = [[row["loss"] for row in rows(name)] for name in ("a.csv", "b.csv")]
        self.assertEqual(*losses)
        self.assertEqual(entries("a.npz")["W"], entries("b.npz")["W"])

    def test_wide_archives(self):
        """Zip's 64-bit form, as for files of 4 GiB, is read by others and by ourselves."""
        self.train("--steps", "9", "--save", "narrow.npz")
        self.train("--steps", "9", "--save", "wide.npz", name="trainer_wide")
        self.assertEqual(entries("narrow.npz"), entries("wide.npz"))
        self.assertNotEqual(read("narrow.npz"), read("wide.npz"))
        self.train("--steps", "20", "--resume", "wide.npz", "--save", "a.npz")
        self.train("--steps", "20", "--resume", "narrow.npz", "--save", "b.npz")
        self.assertEqual(read("a.npz"), read("b.npz"))

    def test_resume_at_the_end(self):
        self.train("--epochs", "1", "--save", "e.npz")
        before = read("e.npz")
        done = self.train("--epochs", "1", "--resume", "e.npz", "--save", "e.npz")
        self.assertEqual((done.stdout, read("e.npz")), (b"", before))
        self.assertIn(f"behind step {EPOCH} already: nothing is left".encode(), done.stderr)

    def test_init(self):
        self.train("--epochs", "2", "--save", "i.npz")
        self.train("--steps", "1", "--init", "i.npz", "--metrics", "i.csv", "--save", "j.npz")
        self.assertLess(float(rows("i.csv")[0]["loss"]), 0.5)
        self.assertEqual(rows("i.csv")[0]["step"], "1")
        with zipfile.ZipFile("i.npz") as old, zipfile.ZipFile("p.npz", "w") as new:
            for name in ("W.npy", "b.npy"):  # what a user would make by numpy.savez
                new.writestr(name, old.read(name))
        self.train("--steps", "1", "--init", "p.npz", "--save", "k.npz")
        self.assertEqual(read("j.npz"), read("k.npz"))
        self.assertIn(
            "has no entry 'step'", self.refuse(2, "--steps", "1", "--resume", "p.npz")
        )

    def test_label_types(self):
        self.train("--steps", "20", "--save", "want.npz")
        for code, descr in zip("bBhHiIQ", ["|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<u8"]):
            write("t.npy", label_file(self.labels, code, descr))
            self.train("--steps", "20", "--save", "t.npz", labels="t.npy")
            self.assertEqual(read("t.npz"), read("want.npz"), descr)
        big = npy(">i4", (SAMPLES,), struct.pack(f">{SAMPLES}i", *self.labels))
        write("t.npy", big)
        self.train("--steps", "20", "--save", "t.npz", labels="t.npy")
        self.assertEqual(read("t.npz"), read("want.npz"))
        swapped = array.array("f", self.images)
        swapped.byteswap()
        write("t.npy", npy(">f4", (SAMPLES, PIXELS), swapped.tobytes()))
        self.train("--steps", "20", "--save", "t.npz", data="t.npy")
        self.assertEqual(read("t.npz"), read("want.npz"))
        write("t.npy", npy("<f4", (SAMPLES,), array.array("f", self.labels).tobytes()))
        self.assertIn(
            "needs int64, this file holds float32", self.refuse(2, "--steps", "1", labels="t.npy")
        )

    def test_ignored_labels(self):
        labels = [-1 if i % 3 == 0 else label for i, label in enumerate(self.labels)]
        write("t.npy", label_file(labels))
        self.assertIn(b"100.00 % right", self.train("--epochs", "8", labels="t.npy").stdout)

    def test_bad_labels(self):
        for place, label, epochs in [(17, 10, 1), (3, -2, 1), (199, 255, 3)]:
            labels = list(self.labels)
            labels[place] = label
            write("bad.npy", label_file(labels))
            text = self.refuse(2, "--epochs", str(epochs), "--save", "none.npz", labels="bad.npy")
            self.assertIn(f"bad.npy: the label {label} of sample {place} is no class", text)
            self.assertIn("0 to 9", text)
            if epochs == 1 and place < EPOCH * BATCH:
                self.assertFalse(os.path.exists("none.npz"))
        labels = [2**64 - 1 if i == 5 else v for i, v in enumerate(self.labels)]
        write("bad.npy", label_file(labels, "Q", "<u8"))
        self.assertIn("of sample 5", self.refuse(2, "--epochs", "1", labels="bad.npy"))

    def test_counts_differ(self):
        write("few.npy", label_file(self.labels[:-1]))
        text = self.refuse(2, "--epochs", "1", labels="few.npy")
        self.assertIn("x.npy holds 200 samples and few.npy holds 199", text)
        write("less.npy", image_file(self.images[: 15 * PIXELS]))
        write("lessy.npy", label_file(self.labels[:15]))
        text = self.refuse(2, "--epochs", "1", data="less.npy", labels="lessy.npy")
        self.assertIn("15 samples, fewer than the 16 of one batch", text)

    def test_usage(self):
        for words, arguments in [
            ("either --epochs N or --steps N", []),
            ("either --epochs N or --steps N", ["--epochs", "1", "--steps", "1"]),
            ("expected at least 1", ["--epochs", "0"]),
            ("drop or pad", ["--epochs", "1", "--last", "keep"]),
            ("below 2^53", ["--epochs", "1", "--seed", str(2**53)]),
            ("at least 0", ["--epochs", "1", "--lr", "-1"]),
            ("exclude each other", ["--epochs", "1", "--init", "a", "--resume", "b"]),
            ("exclude each other", ["--epochs", "1", "--bench"]),
            ("give it by --data", ["--epochs", "1", "--input", "images=x.npy"]),
            ("training makes it", ["--epochs", "1", "--input", "ullage.step=x.npy"]),
            ("plain run", ["--epochs", "1", "--print"]),
            ("--json goes with", ["--epochs", "1", "--json", "j"]),
        ]:
            self.assertIn(words, self.refuse(1, *arguments))
        self.assertIn(
            "needs --labels", stderr("trainer", "--data", "x.npy", "--epochs", "1", code=1)
        )
        self.assertIn("--epochs goes with --data", stderr("trainer", "--epochs", "1", code=1))
        self.assertIn("unknown argument --data", stderr("tiny", "--data", "x.npy", code=1))
        val = ["--epochs", "1", "--val-input", "images=x.npy"]
        self.assertIn("goes with --val", self.refuse(1, *val))
        val += ["--val", "x.npy", "y.npy"]
        self.assertIn("--val-input images: give it by --val", self.refuse(1, *val))
        text = self.refuse(3, "--epochs", "1", "--save", "s.npz", name="trainer_step")
        self.assertIn("a parameter is called 'step'", text)
        text = run("trainer", "--help").stdout.decode()
        words = "--data --labels --epochs --steps --lr --no-shuffle --last --seed --val --metrics"
        for word in (words + " --init --save --resume").split():
            self.assertIn(f"  {word} ", text)
        self.assertEqual(text.count("  --steps "), 1)
        text = run("tiny", "--help").stdout.decode()
        self.assertEqual(text.count("  --steps "), 1)
        self.assertNotIn("--resume", text)

    def test_samples_stay(self):
        write("same.npy", image_file(self.images))
        os.link("same.npy", "link.npz")
        before = read("same.npy")
        for option, path in (("--save", "same.npy"), ("--save", "link.npz"), ("--metrics", "y.npy")):
            text = self.refuse(1, "--steps", "1", option, path, data="same.npy")
            self.assertIn(f"{option} {path} would destroy samples", text)
        self.assertEqual(read("same.npy"), before)
        text = self.refuse(1, "--steps", "1", "--save", "same.npy", "--val", "same.npy", "y.npy")
        self.assertIn("would destroy", text)
        text = self.refuse(1, "--steps", "1", "--save", "both", "--metrics", "both")
        self.assertIn("--metrics both would destroy a checkpoint", text)
        self.train("--steps", "1", "--save", "start.npz")
        before = read("start.npz")
        for option in ("--init", "--resume"):
            text = self.refuse(1, "--steps", "1", option, "start.npz", "--metrics", "start.npz")
            self.assertIn("--metrics start.npz would destroy a checkpoint", text)
        self.assertEqual(read("start.npz"), before)

    def test_other_modes(self):
        """A plain run needs no numbers of the step, and random labels are classes."""
        write("x1.npy", image_file(self.images[: BATCH * PIXELS]))
        write("y1.npy", label_file(self.labels[:BATCH]))
        given = ["--input", "images=x1.npy", "--input", "labels=y1.npy", "--output", "loss=l.npy"]
        losses = []
        for repeat in ("1", "1000"):
            run("trainer", *given, "--repeat", repeat)
            losses.append(struct.unpack("<f", read_npy(read("l.npy"))[2])[0])
        self.assertAlmostEqual(losses[0], math.log(10), places=5)
        self.assertLess(losses[1], 0.2)
        run("trainer_classes", "--random", "3", "--print")
        run("trainer", "--bench", "--duration", "0.01", "--warmup", "0")
        run("trainer", "--version")

    def test_not_a_number(self):
        self.train("--epochs", "1", "--save", "n.npz", "--no-shuffle")
        before = read("n.npz")
        for value in (math.nan, math.inf):
            images = array.array("f", self.images)
            images[50 * PIXELS] = value
            images[50 * PIXELS + 1] = -value
            write("nan.npy", image_file(images))
            text = self.refuse(
                6,
                "--epochs",
                "3",
                "--resume",
                "n.npz",
                "--save",
                "n.npz",
                "--metrics",
                "nan.csv",
                data="nan.npy",
            )
            self.assertRegex(
                text,
                r"step (1[3-9]|2\d): the loss is not a number, for sample 50 of nan.npy is not "
                r"finite; .* \(leave such samples out\)",
            )
            self.assertEqual(read("n.npz"), before)
        self.assertEqual(rows("nan.csv")[-1]["loss"].lstrip("-"), "nan")
        images = array.array("f", self.images)  # the loss of the step before the last is a number
        images[(BATCH - 1) * PIXELS : BATCH * PIXELS] = array.array("f", [3e38] * PIXELS)
        write("nan.npy", image_file(images))
        text = self.refuse(
            6, "--steps", "1", "--no-shuffle", "--lr", "1e10", "--save", "n.npz", data="nan.npy"
        )
        self.assertIn("'W' is not finite: no checkpoint is written (a lower --lr, or", text)
        self.assertEqual(read("n.npz"), before)
        more = ["--steps", "1", "--no-shuffle", "--lr", "1e10"]
        self.assertIn("'W' is not finite", self.refuse(6, *more, data="nan.npy"))  # without --save

    def test_held_out_not_a_number(self):
        """It ends the training, names the sample, and writes nothing."""
        self.train("--epochs", "1", "--save", "h.npz")
        before = read("h.npz")
        alone = "for sample 70 of held.npy alone makes it so; .* \\(leave such samples out\\)"
        for value, says in (
            (math.nan, "not a number, for sample 70 of held.npy is not finite"),
            (math.inf, "(not a number|infinite), for sample 70 of held.npy is not finite"),
            (3e38, "(not a number|infinite), " + alone),
        ):
            images = array.array("f", self.images)
            images[70 * PIXELS : 71 * PIXELS] = array.array("f", [value] * PIXELS)
            write("held.npy", image_file(images))
            text = self.refuse(
                *(6, "--epochs", "3", "--resume", "h.npz", "--save", "h.npz"),
                *("--val", "held.npy", "y.npy"),
            )
            self.assertRegex(
                text,
                rf"behind step {2 * EPOCH}, the loss of what is held out is {says}",
            )
            self.assertEqual(read("h.npz"), before)

    def test_interrupt(self):
        for how in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            child = subprocess.Popen(
                [
                    program("trainer"),
                    "--data",
                    "x.npy",
                    "--labels",
                    "y.npy",
                    "--epochs",
                    "100000000",
                    "--save",
                    "stop.npz",
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            child.stdout.readline()
            child.send_signal(how)
            _, text = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 130, text)
            step = struct.unpack("<q", entries("stop.npz")["step"][2])[0]
            self.assertIn(f"interrupted behind step {step}\n".encode(), text)
            self.train("--steps", str(step + 20), "--resume", "stop.npz", "--save", "stop.npz")
            self.train("--steps", str(step + 20), "--save", "whole.npz")
            self.assertEqual(read("stop.npz"), read("whole.npz"))

    def test_terminal(self):
        """A line that moves, which neither lines of epochs nor errors are written into."""
        images = array.array("f", self.images)
        images[60 * PIXELS] = math.nan
        write("nan.npy", image_file(images))
        for data, arguments, code in [
            ("x.npy", ["--epochs", "100"], 0),
            ("nan.npy", ["--epochs", "1", "--no-shuffle"], 6),
        ]:
            leader, follower = pty.openpty()
            child = subprocess.Popen(
                [program("trainer"), "--data", data, "--labels", "y.npy", *arguments],
                stdout=subprocess.PIPE,
                stderr=follower,
            )
            os.close(follower)
            shown = b""
            reader = threading.Thread(target=lambda c=child: c.stdout.read())
            reader.start()
            try:
                while part := os.read(leader, 65536):
                    shown += part
            except OSError:  # how a terminal ends
                pass
            reader.join()
            os.close(leader)
            self.assertEqual(child.wait(), code, shown)
            parts = shown.decode().split("\r\x1b[K")
            self.assertRegex(
                parts[1],
                r"^step \d+ of \d+, loss \S+, [\d.]+ % right, \d+ samples/s, 0:\d\d left $",
            )
            self.assertEqual(code != 0, "error: step 4: the loss" in parts[-1])
            child.stdout.close()

    def test_full_disk(self):
        self.train("--epochs", "1", "--save", "full.npz")
        before, names = read("full.npz"), sorted(os.listdir("."))
        done = subprocess.run(
            [
                program("trainer"),
                "--data",
                "x.npy",
                "--labels",
                "y.npy",
                "--epochs",
                "2",
                "--resume",
                "full.npz",
                "--save",
                "full.npz",
            ],
            capture_output=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
        )
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn(b"cannot write full.npz", done.stderr)
        self.assertEqual((read("full.npz"), sorted(os.listdir("."))), (before, names))
        self.refuse(5, "--epochs", "1", "--save", "/dev/full")
        self.refuse(5, "--epochs", "1", "--metrics", "/dev/full")
        self.refuse(5, "--epochs", "1", "--metrics", "no/such/folder")
        done = self.train("--epochs", "1", "--save", "no/such/folder.npz", code=5)
        self.assertEqual(done.stdout, b"")  # said before it trains

    def test_other_checkpoint(self):
        self.train("--epochs", "1", "--save", "own.npz")
        labels = [label % 9 for label in self.labels]
        write("y9.npy", label_file(labels))
        for option in ("--resume", "--init"):
            text = self.refuse(
                2, "--epochs", "2", option, "own.npz", name="trainer_classes", labels="y9.npy"
            )
            self.assertIn(
                "parameter 'W' needs float32 [64,9], this file holds float32 [64,10]", text
            )
        x = npy("<f8", (SAMPLES, PIXELS), array.array("d", self.images).tobytes())
        write("x64.npy", x)
        text = self.refuse(
            2, "--epochs", "2", "--resume", "own.npz", name="trainer_double", data="x64.npy"
        )
        self.assertIn("needs float64 [64,10], this file holds float32", text)
        text = self.refuse(2, "--epochs", "2", "--resume", "own.npz", "--seed", "3")
        self.assertIn("the seed 0, this one has 3", text)
        with zipfile.ZipFile("own.npz") as old, zipfile.ZipFile("more.npz", "w") as new:
            for name in old.namelist():
                new.writestr(name, old.read(name))
            new.writestr("V.npy", old.read("W.npy"))
        for option in ("--resume", "--init"):
            self.assertIn("has no parameter", self.refuse(2, "--epochs", "2", option, "more.npz"))
        self.refuse(5, "--epochs", "2", "--resume", "missing.npz")

    def test_resume_with_other_batches_or_samples(self):
        """Parameters, state, step and epochs stay, and what changes is said; from there on it is
        exact."""
        self.train("--epochs", "1", "--save", "own.npz")
        write("x400.npy", image_file(self.images * 2))
        write("y400.npy", label_file(self.labels * 2))
        grown = {"data": "x400.npy", "labels": "y400.npy"}
        for arguments, says, steps in [
            ({"name": "trainer_micro"}, "batches of 16, this one has 32", 6),
            (grown, "samples of 200, this one has 400", 25),
        ]:
            more = ["--resume", "own.npz", "--save"]
            still = self.train("--steps", str(EPOCH), *more, "still.npz", **arguments)
            self.assertIn(says, still.stderr.decode())
            at = f"in epoch 2, of whose {steps} steps 0 count as done"
            self.assertIn(f"behind step {EPOCH} with its parameters, state", still.stderr.decode())
            self.assertIn(at, still.stderr.decode())
            old, new = entries("own.npz"), entries("still.npz")
            self.assertEqual({n for n in old if new[n] != old[n]}, {"generator"})
            self.assertEqual(new["order_step"][2], struct.pack("<q", steps))
            self.train("--steps", "40", *more, "whole.npz", **arguments)
            self.train("--steps", "20", *more, "part.npz", **arguments)
            done = self.train("--steps", "40", "--resume", "part.npz", "--save", "part.npz",
                              **arguments)  # fmt: skip
            self.assertNotIn(b"was written by", done.stderr)
            self.assertEqual(read("whole.npz"), read("part.npz"))
            last = self.train("--epochs", "3", *more, "epochs.npz", **arguments).stdout.decode()
            self.assertRegex(last, rf"(?s)^epoch 2, step {EPOCH + steps}:.*epoch 3, step "
                                   rf"{EPOCH + 2 * steps}:")  # fmt: skip
        # within an epoch: the samples of 5 steps of 16 are those of 2 of 32, and half of a third
        self.train("--steps", str(EPOCH + 5), "--save", "own.npz")
        done = self.train("--epochs", "2", "--resume", "own.npz", name="trainer_micro")
        self.assertIn("of whose 6 steps 2 count as done", done.stderr.decode())
        self.assertRegex(done.stdout.decode(), f"^epoch 2, step {EPOCH + 5 + 4}:")

    def test_state_dict(self):
        """What torch's BatchNorm counts is passed over where a training begins, not where one goes
        on."""
        self.train("--epochs", "1", "--save", "s.npz")
        with zipfile.ZipFile("s.npz") as old, zipfile.ZipFile("t.npz", "w") as new:
            for name in old.namelist():
                new.writestr(name, old.read(name))
            counter = npy("<i8", (), struct.pack("<q", 44))
            new.writestr("bn.num_batches_tracked.npy", counter)
            new.writestr("num_batches_tracked.npy", counter)
        done = self.train("--steps", "1", "--init", "t.npz")
        self.assertIn(b"passed over: num_batches_tracked of 2 layers", done.stderr)
        self.assertIn("tracked", self.refuse(2, "--epochs", "2", "--resume", "t.npz"))

    def test_leftovers(self):
        """What a killed save left is removed by the next start; what is another's stays."""
        child = subprocess.Popen(["sleep", "60"])
        gone = subprocess.Popen(["true"])
        gone.wait()
        stay = [f"l.npz.{child.pid}.tmp", "l.npz.tmp", f"ml.npz.{gone.pid}.tmp", "l.npz.1x.tmp"]
        for name in [*stay, f"l.npz.{gone.pid}.tmp"]:
            write(name, b"part")
        self.train("--steps", "1", "--save", "l.npz")
        self.assertFalse(os.path.exists(f"l.npz.{gone.pid}.tmp"))
        for name in stay:
            self.assertEqual(read(name), b"part")
            os.remove(name)
        child.kill()
        child.wait()

    def test_full_standard_output(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [program("trainer"), "--data", "x.npy", "--labels", "y.npy", "--epochs", "2"]
                + ["--save", "full.npz"],
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
            )
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn(b"cannot write to standard output", done.stderr)
        self.assertIn("W", entries("full.npz"))  # what was learned is kept

    def test_memory_does_not_grow_with_the_data(self):
        peaks = []
        for count in (1000, 200000):
            write("big.npy", npy("<f4", (count, PIXELS), self.images[:PIXELS].tobytes() * count))
            write("bigy.npy", label_file([3] * count, "b", "|i1"))
            child = subprocess.Popen(
                [
                    program("trainer"),
                    "--data",
                    "big.npy",
                    "--labels",
                    "bigy.npy",
                    "--epochs",
                    "99999",
                ],
                stdout=subprocess.PIPE,
            )
            child.stdout.readline()  # after the first epoch
            with open(f"/proc/{child.pid}/status", encoding="ascii") as status:
                peaks += [int(line.split()[1]) for line in status if line.startswith("VmHWM")]
            child.kill()
            child.communicate()
        self.assertLess(abs(peaks[1] - peaks[0]), 300, peaks)  # KiB; the files differ by 50 MiB

    def test_hostile_samples(self):
        data = image_file(self.images)
        half = npy("<f4", (SAMPLES, PIXELS), self.images.tobytes()[: SAMPLES * PIXELS * 2])
        cases = [
            (b"", "too short"),
            (data[:40], "ends inside its header"),
            (b"PK" + data, "not a .npy file"),
            (half, "cut short: it has room for 100 samples"),
            (npy("<f4", (2**62, PIXELS), b"1234"), "cut short"),
            (npy("<f4", (0, PIXELS), b""), "holds 0 samples"),
            (npy("<f4", (), b"1234"), "all dimensions but the first"),
            (
                npy("<f4", (SAMPLES, 8, 8), self.images.tobytes()),
                "this file holds float32 [200,8,8]",
            ),
            (npy("<f4", (SAMPLES, 65), b""), "this file holds float32 [200,65]"),
            (npy("<f4", (SAMPLES, PIXELS), self.images.tobytes(), True), "Fortran order"),
            (npy("<f8", (SAMPLES, PIXELS), b""), "needs float32, this file holds float64"),
            (npy("|O", (SAMPLES, PIXELS), b""), "needs float32"),
        ]
        for content, words in cases:
            write("h.npy", content)
            self.assertIn(words, self.refuse(2, "--epochs", "1", data="h.npy"))
        os.mkfifo("pipe")
        writer = subprocess.Popen(["sh", "-c", "cat x.npy >pipe"], stderr=subprocess.DEVNULL)
        self.assertIn("regular file", self.refuse(3, "--epochs", "1", data="pipe"))
        writer.wait(timeout=10)
        self.refuse(5, "--epochs", "1", data="missing.npy")
        self.refuse(5, "--epochs", "1", data=".")

    def test_hostile_checkpoints(self):
        self.train("--epochs", "1", "--save", "good.npz")
        good = read("good.npz")
        for size in range(0, len(good), 61):
            write("cut.npz", good[:size])
            self.refuse(2, "--epochs", "2", "--resume", "cut.npz")
        draw = random.Random(3)
        for at in range(0, len(good), 37):
            bad = bytearray(good)
            bad[at] ^= 1 << draw.randrange(8)
            write("cut.npz", bytes(bad))
            done = subprocess.run(
                [
                    program("trainer"),
                    "--data",
                    "x.npy",
                    "--labels",
                    "y.npy",
                    "--epochs",
                    "1",
                    "--resume",
                    "cut.npz",
                ],
                capture_output=True,
                check=False,
            )
            self.assertIn(done.returncode, (0, 2, 3), (at, done.stderr))

        def with_extra(name, content):
            out = io.BytesIO()
            with zipfile.ZipFile("good.npz") as old, zipfile.ZipFile(out, "w") as new:
                for member in old.namelist():
                    new.writestr(member, content if member == name else old.read(member))
            return out.getvalue()

        for name, content in [
            ("step.npy", npy("<i8", (), struct.pack("<q", -1))),
            ("step.npy", npy("<i4", (), struct.pack("<i", 1))),
            ("learning_rate.npy", npy("<f8", (), struct.pack("<d", math.nan))),
            ("generator.npy", npy("<u8", (4,), struct.pack("<4Q", 2**60, 1, SAMPLES, BATCH))),
            ("generator.npy", npy("<u8", (4,), struct.pack("<4Q", 1, 2, SAMPLES, BATCH))),
            ("generator.npy", npy("<u8", (3,), struct.pack("<3Q", 1, 2, SAMPLES))),
            ("optimizer.npy", npy("|u1", (8,), b"momentum")),
            ("optimizer.npy", npy("|u1", (16,), b"momentum" * 2)),
        ]:
            write("cut.npz", with_extra(name, content))
            self.refuse(2, "--epochs", "2", "--resume", "cut.npz")
        write("cut.npz", with_extra("optimizer.npy", npy("|u1", (16,), b"adamw" + bytes(11))))
        text = self.refuse(2, "--epochs", "2", "--resume", "cut.npz")
        self.assertIn("with optimizer adamw, this one has momentum", text)
        write("cut.npz", with_extra("step.npy", npy("<i8", (), struct.pack("<q", 2**62))))
        self.train("--epochs", "2", "--resume", "cut.npz")  # is past its end already


if __name__ == "__main__":
    unittest.main()
