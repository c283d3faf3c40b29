# SPDX-License-Identifier: Apache-2.0
"""What README.md and docs/ hold that can be run: blocks, the marks in front of them, and how what a
command prints is compared with what a page shows. README.md has the rules."""

import difflib
import re

MARKS = ("run", "not run", "slow", "needs", "numbers")
NUMBER = re.compile(r"\d+(?:,\d+)*(?:\.\d+)?(?:e[+-]?\d+)?")
DRAWN = re.compile(r"[ .:#_|^-]{2,}")
PROGRAMS = re.compile(r"(sudo |\./\w|scripts/|(ullage|cmake|ctest|make|python3?|pip|apt|apt-get|cc|gcc|nvcc|docker) )")


class Item:
    """One thing to run: what is shown below it are lines `begin` to `end` of the page."""

    def __init__(self, kind, text, marks, line):
        self.kind = kind  # "command", "script", "hidden", "file", "statement" or "python"
        self.text = text
        self.marks = marks  # of its block: name -> text
        self.line = line
        self.prefix = ""
        self.begin = self.end = line + 1
        self.name = None  # of a file


def take_shown(item, lines, at, end):
    item.begin = at
    while at < end and not lines[at].startswith(item.prefix + ("$ " if item.kind == "command" else ">>> ")):
        at += 1
    item.end = at
    while item.end > item.begin and not lines[item.end - 1].strip():
        item.end -= 1
    return at


def prompts(lines, begin, end, prefix, first, goes_on, kind, marks):
    """The commands of a block, each with what is shown below it."""
    found, at = [], begin
    while at < end:
        if not lines[at].startswith(prefix + first):
            at += 1
            continue
        item = Item(kind, lines[at][len(prefix + first):], marks, at)
        item.prefix = prefix
        at += 1
        while at < end and lines[at].startswith(prefix + goes_on):
            item.text += "\n" + lines[at][len(prefix + goes_on):]
            at += 1
        at = take_shown(item, lines, at, end)
        found.append(item)
    return found


def file_name(text):
    """Of a block whose first line is a comment that begins with the name of a file."""
    found = re.match(r"(?:/\*|//|#|<!--|--) *([\w./-]+\.\w+|Makefile|CMakeLists\.txt)\b", text)
    return found.group(1) if found else None


def fenced(lines, begin, end, language, marks):
    """The items of the block between two fences."""
    text = "\n".join(lines[begin:end]) + "\n"
    if any(line.startswith("$ ") for line in lines[begin:end]):
        return prompts(lines, begin, end, "", "$ ", "> ", "command", marks)
    if language == "python" and any(line.startswith(">>> ") for line in lines[begin:end]):
        return prompts(lines, begin, end, "", ">>> ", "... ", "statement", marks)
    item = Item({"sh": "script", "bash": "script", "python": "python"}.get(language, "file"), text, marks, begin)
    item.begin = item.end = end
    item.name = file_name(text)
    if item.name is not None:
        item.kind = "file"
    return [item] if item.kind != "file" or item.name is not None else []


def mark_of(lines, at):
    """(name, text, line behind it) of the comment that begins in a line, or None."""
    if not lines[at].startswith("<!-- "):
        return None
    end = at
    while "-->" not in lines[end]:
        end += 1
    text = "\n".join(lines[at:end + 1])[5:].split("-->")[0].strip()
    found = re.match(rf"({'|'.join(MARKS)}):\s*(.*)", text, flags=re.S)
    return (found.group(1), found.group(2), end + 1) if found else (None, text, end + 1)


def block_end(lines, at):
    """Behind the indented block that begins in a line."""
    end = at
    while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
        end += 1
    while not lines[end - 1].strip():
        end -= 1
    return end


class Page:
    def __init__(self, path, text):
        self.path = path
        self.lines = text.split("\n")
        self.items = []
        self.not_run = []  # (line, reason)
        self.wrong = []
        self.parse()

    def parse(self):
        at, marks, blank_before = 0, {}, True
        while at < len(self.lines):
            line = self.lines[at]
            mark = mark_of(self.lines, at)
            fence = re.match(r"(```+|~~~+) *(\w*)", line)
            if mark is not None:
                marks = self.take_mark(mark, marks, at)
                at = mark[2]
            elif fence is not None:
                end = at + 1
                while end < len(self.lines) and not self.lines[end].startswith(fence.group(1)):
                    end += 1
                self.take_block(fenced(self.lines, at + 1, end, fence.group(2), marks), at + 1, end, "", marks)
                at, marks = end + 1, {}
            elif line.startswith("    ") and blank_before:
                end = block_end(self.lines, at)
                items = prompts(self.lines, at, end, "    ", "$ ", "> ", "command", marks)
                self.take_block(items, at, end, "    ", marks)
                at, marks = end, {}
            else:
                if line.strip() and marks:
                    self.wrong.append(f"{self.path}:{at + 1}: no block follows the mark of: {', '.join(marks)}")
                    marks = {}
                at += 1
            blank_before = at == 0 or not self.lines[at - 1].strip() or self.lines[at - 1].endswith("-->")

    def take_mark(self, mark, marks, at):
        name, text, _ = mark
        if name is None:
            return marks
        if not text:
            self.wrong.append(f"{self.path}:{at + 1}: {name} says nothing")
        if name != "run":
            return {**marks, name: text}
        self.items.append(Item("hidden", text, marks, at))
        return {}

    def take_block(self, items, begin, end, prefix, marks):
        bare = [line for line in self.lines[begin:end] if PROGRAMS.match(line[len(prefix):])]
        if "not run" in marks:
            self.not_run.append((begin, marks["not run"]))
        elif items:
            self.items += items
        elif marks or bare:
            what = "nothing to run behind its mark" if marks else f'a command without "$ ": {bare[0].strip()}'
            self.wrong.append(f"{self.path}:{begin + 1}: {what}")

    def shown(self, item):
        return [line[len(item.prefix):] for line in self.lines[item.begin:item.end]]


def plain(line):
    """A line with all numbers, and all that is drawn of characters, alike."""
    return DRAWN.sub(" ", NUMBER.sub("0", line)).strip()


def is_line(shown, line, numbers=False):
    """Whether a line is as shown; "..." in it stands for a part of it."""
    if numbers:
        shown, line = (plain(part.rstrip().replace("...", "\1")) for part in (shown, line))
        shown = shown.replace("\1", "...")
    parts = [re.escape(part.strip()) for part in shown.split("...")]
    if len(parts) == 1:
        return shown.rstrip() == line.rstrip()
    return re.fullmatch(r"\s*.*?\s*".join(parts), line.strip()) is not None


def output_lines(output):
    return output.rstrip("\n").split("\n") if output.strip() else []


def is_shown(shown, output, numbers=False):
    """Whether the lines shown are all of the output, but for what is marked as left out."""
    lines = output_lines(output)
    ends = {0}  # how many lines of the output what was shown so far may be
    for line in "\n".join(shown).rstrip("\n").split("\n") if any(shown) else []:
        if line.strip() == "...":
            ends = set(range(min(ends), len(lines) + 1)) if ends else ends
        else:
            ends = {at + 1 for at in ends if at < len(lines) and is_line(line, lines[at], numbers)}
    return len(lines) in ends


def renewed_line(shown, line):
    """The line as it is now, with what it left out left out still."""
    if is_line(shown, line) or "..." not in shown:
        return shown if is_line(shown, line) else line
    pattern = "(.*?)".join("(" + r"[\d.,e+-]+".join(re.escape(part) for part in NUMBER.split(piece)) + ")" for piece in shown.split("..."))
    found = re.fullmatch(pattern, line)
    return "...".join(found.groups()[::2]) if found else line


def likeness(shown, line):
    return difflib.SequenceMatcher(None, plain(shown), plain(line), autojunk=False).ratio()


def renewed(shown, output):
    """What to show instead: where lines were left out, those most like the ones that were shown."""
    lines, pieces = output_lines(output), [[]]
    for line in shown:
        if line.strip() == "...":
            pieces.append([])
        else:
            pieces[-1].append(line)
    if len(pieces) == 1:
        return lines
    result, at = [], 0
    for number, piece in enumerate(pieces):
        last = max(at, len(lines) - len(piece))
        places = [at] if number == 0 else [last] if number == len(pieces) - 1 else range(at, last + 1)
        if piece:
            scores = [(-sum(likeness(line, lines[place + i]) for i, line in enumerate(piece) if place + i < len(lines)), place) for place in places]
            at = min(scores)[1]
            result += [renewed_line(line, lines[at + i]) for i, line in enumerate(piece) if at + i < len(lines)]
            at += len(piece)
        if number < len(pieces) - 1:
            result.append("...")
    return result
