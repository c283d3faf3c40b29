#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The parts of the demo around the OCR networks: drawing, cutting out, spelling.

    demo_ocr.py draw DIR                 picture.png, picture.npy (input of detection)
    demo_ocr.py cut DIR MAP.npy          finds the lines in detection's output: line_K.npy
    demo_ocr.py spell MODEL OUT...       reads recognition's outputs; exit 6 if a line is wrong
    demo_ocr.py peak X.npy [MODEL]       peak bytes of this process, which reads X, and has onnxruntime
                                         run MODEL on it where one is given; onnxruntime's version

The picture is drawn here, so what it says and where is known.
"""

import sys

import numpy as np

SIZE = (320, 640)  # height, width
LINES = ["The empty space left in a cask", "4 MiB reserved, 0 unaccounted", "ULLAGE"]
HEIGHTS = [30, 30, 56]
LINE_INPUT = (48, 672)  # what the recognition network takes


def font(pixels):
    from PIL import ImageFont

    return ImageFont.load_default(pixels)


def places():
    """(x, y, text, pixels) of every line."""
    y, result = 40, []
    for text, pixels in zip(LINES, HEIGHTS, strict=True):
        result.append((48, y, text, pixels))
        y += pixels + 50
    return result


def normalized(picture, mean, std):
    """uint8 [H,W,3] RGB -> float32 [1,3,H,W] BGR"""
    x = picture[:, :, ::-1].astype(np.float32) / 255
    x = (x - np.float32(mean)) / np.float32(std)
    return np.ascontiguousarray(x.transpose(2, 0, 1)[None])


def draw(folder):
    from PIL import Image, ImageDraw

    shade = np.linspace(255, 225, SIZE[1]).astype(np.uint8)
    image = Image.fromarray(np.broadcast_to(shade[None, :, None], (*SIZE, 3)).copy())
    pen = ImageDraw.Draw(image)
    for x, y, text, pixels in places():
        pen.text((x, y), text, fill=(20, 30, 60), font=font(pixels))
    image.save(f"{folder}/picture.png")
    values = normalized(np.asarray(image), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    np.save(f"{folder}/picture.npy", values)


def find_lines(probability):
    """Boxes (top, bottom, left, right) of connected regions above 0.3, grown as PP-OCR does: the
    network marks the core of a line."""
    from scipy import ndimage

    labels, _ = ndimage.label(probability > 0.3)
    boxes = []
    for rows, columns in ndimage.find_objects(labels):
        height, width = rows.stop - rows.start, columns.stop - columns.start
        if height < 4 or width < 8:
            continue
        grow = int(round(1.6 * height * width / (2 * (height + width))))
        boxes.append((max(0, rows.start - grow), min(SIZE[0], rows.stop + grow),
                      max(0, columns.start - grow), min(SIZE[1], columns.stop + grow)))  # fmt: skip
    return sorted(boxes)


def cut(folder, map_file):
    from PIL import Image

    picture = Image.open(f"{folder}/picture.png")
    boxes = find_lines(np.load(map_file)[0, 0])
    for k, (top, bottom, left, right) in enumerate(boxes):
        part = picture.crop((left, top, right, bottom))
        width = min(LINE_INPUT[1], round(part.width * LINE_INPUT[0] / part.height))
        part = part.resize((width, LINE_INPUT[0]), Image.BILINEAR)
        values = normalized(np.asarray(part), [0.5] * 3, [0.5] * 3)
        padded = np.zeros((1, 3, *LINE_INPUT), np.float32)
        padded[:, :, :, :width] = values
        np.save(f"{folder}/line_{k}.npy", padded)
        print(f"  text found at x {left}..{right}, y {top}..{bottom}")
    if len(boxes) != len(LINES):
        print(f"found {len(boxes)} lines, drew {len(LINES)}", file=sys.stderr)
        sys.exit(6)


def spell(model_file, outputs):
    import onnx

    model = onnx.load(model_file)
    letters = {entry.key: entry.value for entry in model.metadata_props}["character"].splitlines()
    alphabet = [""] + letters + [" "]
    wrong = 0
    for text, file in zip(LINES, outputs, strict=True):
        best = np.load(file)[0].argmax(1)
        kept = [b for i, b in enumerate(best) if b != 0 and (i == 0 or b != best[i - 1])]
        read = "".join(alphabet[b] for b in kept)
        same = read.replace(" ", "").lower() == text.replace(" ", "").lower()
        wrong += not same
        print(f'  drawn "{text}"  read "{read}"' + ("" if same else "  WRONG"))
    sys.exit(6 if wrong else 0)


def peak(picture, model=None):
    """The peak of this process, which does nothing else."""
    x = np.load(picture)
    version = ""
    if model is not None:
        import onnxruntime

        session = onnxruntime.InferenceSession(model)
        session.run(None, {session.get_inputs()[0].name: x})
        version = onnxruntime.__version__
    with open("/proc/self/status", encoding="ascii") as file:
        kib = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    print(kib * 1024, version)


def main():
    command, *rest = sys.argv[1:]
    if command == "draw":
        draw(rest[0])
    elif command == "cut":
        cut(rest[0], rest[1])
    elif command == "spell":
        spell(rest[0], rest[1:])
    elif command == "peak":
        peak(*rest)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
