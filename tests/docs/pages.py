# SPDX-License-Identifier: Apache-2.0
"""What README.md and docs/ hold that can be run: blocks, the marks in front of them, and how what a
command prints is compared with what a page shows. README.md has the rules."""

import difflib
import re

MARKS = ("run", "not run", "slow", "needs", "varies")
NUMBER = re.compile(r"[+-]?\d+(?:,\d+)*(?:\.\d+)*(?:e[+-]?\d+)?")
PROGRAMS = re.compile(r" *(sudo |\./\w|scripts/|tests/\w|(ullage|cmake|ctest|ninja|make|git|cd|export|python3?|pip|apt|apt-get|cc|gcc|nvcc|docker) )")
UNREAD = (
    (r" +(```|~~~)", "a fence within something else is not read"),
    (r"[\s>]*\$ \S", "a command in no block is not read: one is indented by four, behind an empty line, or in a fence"),
    (rf"\s*<!-*\s*({'|'.join(MARKS)})\s*:", "this is no mark: one begins its line, as <!-- run: ... -->"),
)  # of lines that are text
SHELLS = ("sh", "bash", "shell", "console")


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
        self.may_fail = False  # the page shows its exit code, or what it raises

    def varying(self):
        return varying(self.marks.get("varies", ""))


def varying(text):
    """(what it looks like, what stands for it) of each kind of number that a mark names: "loss N, N samples/s"."""
    found = []
    for words in filter(None, (part.strip() for part in text.split(","))):
        pieces = [r"\s+".join(map(re.escape, piece.split(" "))) for piece in re.split(r"\bN\b", words)]
        begin, written = (r"\s*(?<![\w.,])", " " + words) if pieces[0] == "" else (r"(?<!\w)", words)
        found.append((re.compile(begin + NUMBER.pattern.join(pieces) + r"(?!\w|[.,]\d)"), written))
    return found


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
    """The file that a block becomes: its first line is a comment that begins with the name."""
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
    """(name, text, the line after it) of the comment that begins in a line, or None."""
    if not lines[at].startswith("<!-- "):
        return None
    end = at
    while "-->" not in lines[end]:
        end += 1
    text = "\n".join(lines[at:end + 1])[5:].split("-->")[0].strip()
    found = re.match(rf"({'|'.join(MARKS)}):\s*(.*)", text, flags=re.S)
    return (found.group(1), found.group(2), end + 1) if found else (None, text, end + 1)


def block_end(lines, at):
    """The line after the indented block that begins in a line."""
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
        for item, following in zip(self.items, self.items[1:] + [None]):
            shown = self.shown(item)
            if item.kind == "statement":
                item.may_fail = bool(shown) and shown[-1].strip() != "..."
            elif item.kind == "command" and following is not None:
                item.may_fail = following.kind == "command" and "$?" in following.text

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
                self.take_block(fenced(self.lines, at + 1, end, fence.group(2), marks), at + 1, end, "", marks, fence.group(2) in SHELLS)
                at, marks = end + 1, {}
            elif line.startswith("    ") and blank_before:
                end = block_end(self.lines, at)
                items = prompts(self.lines, at, end, "    ", "$ ", "> ", "command", marks)
                self.take_block(items, at, end, "    ", marks)
                at, marks = end, {}
            else:
                for pattern, what in UNREAD:
                    if re.match(pattern, line, flags=re.I):
                        self.wrong.append(f"{self.path}:{at + 1}: {what}")
                if line.strip() and marks:
                    self.wrong.append(f"{self.path}:{at + 1}: no block follows the mark of: {', '.join(marks)}")
                    marks = {}
                at += 1
            blank_before = at == 0 or not self.lines[at - 1].strip() or self.lines[at - 1].endswith("-->")

    def take_mark(self, mark, marks, at):
        name, text, _ = mark
        if name is None:
            unknown = re.match(r"([a-z ]+):", text, flags=re.I)
            self.wrong += [f"{self.path}:{at + 1}: there is no mark {unknown.group(1)}"] if unknown else []
            return marks
        if not text:
            self.wrong.append(f"{self.path}:{at + 1}: {name} says nothing")
        if name != "run":
            return {**marks, name: text}
        self.items.append(Item("hidden", text, marks, at))
        return {}

    def take_block(self, items, begin, end, prefix, marks, is_shell=False):
        place = f"{self.path}:{begin + 1}: "
        lines = [line[len(prefix):] for line in self.lines[begin:end]]
        if "not run" in marks:
            self.not_run.append((begin, marks["not run"]))
        elif items:
            self.items += items
            above = [line for line in lines[:items[0].line - begin] if line.strip()]
            self.wrong += [f"{place}nothing compares what stands above the first command: {line}" for line in above[:1]]
            shown = [line for item in items for line in self.shown(item)]
            for pattern, words in varying(marks.get("varies", "")):
                if NUMBER.pattern not in pattern.pattern or not any(pattern.search(line) for line in shown):
                    self.wrong.append(f"{place}no number that varies is like: {words.strip()}")
        elif marks:
            self.wrong.append(f"{place}nothing to run behind its mark")
        else:
            bare = [line for line in lines if PROGRAMS.match(line) or is_shell or re.match(r"\s+\$ ", line)]
            self.wrong += [f'{place}a command without "$ ": {line.strip()}' for line in bare[:1]]

    def shown(self, item):
        return [line[len(item.prefix):] for line in self.lines[item.begin:item.end]]


def plain(line, varies=()):
    """A line in which what varies is as the mark says it, and not a number."""
    for pattern, words in varies:
        line = pattern.sub(words, line)
    return line


def is_line(shown, line, varies=()):
    """Whether a line is as shown; "..." in it replaces a part of it."""
    shown, line = plain(shown, varies), plain(line, varies)
    parts = [re.escape(part.strip()) for part in shown.split("...")]
    if len(parts) == 1:
        return shown.rstrip() == line.rstrip()
    return re.fullmatch(r"\s*.*?\s*".join(parts), line.strip()) is not None


def output_lines(output):
    return output.rstrip("\n").split("\n") if output.strip() else []


def is_shown(shown, output, varies=()):
    """Whether the lines shown are all of the output, except for what is marked as left out."""
    lines = output_lines(output)
    ends = {0}  # how many lines of the output what was shown so far may be
    for line in "\n".join(shown).rstrip("\n").split("\n") if any(shown) else []:
        if line.strip() == "...":
            ends = set(range(min(ends), len(lines) + 1)) if ends else ends
        else:
            ends = {at + 1 for at in ends if at < len(lines) and is_line(line, lines[at], varies)}
    return len(lines) in ends


def renewed_line(shown, line, varies):
    """The line as it is now; as it was shown where nothing but what varies is another; what was left out is left out still."""
    if is_line(shown, line, varies):
        return shown
    pattern = "(.*?)".join("(" + NUMBER.pattern.join(re.escape(part) for part in NUMBER.split(piece)) + ")" for piece in shown.split("..."))
    found = re.fullmatch(pattern, line) if "..." in shown else None
    return "...".join(found.groups()[::2]) if found else line


def likeness(shown, line):
    return difflib.SequenceMatcher(None, NUMBER.sub("0", shown), NUMBER.sub("0", line), autojunk=False).ratio()


def counterparts(shown, lines):
    """(line shown, line now) of all lines there are now; None where nothing shown is like it."""
    if len(shown) == len(lines):
        return list(zip(shown, lines))
    olds = [None] * len(lines)
    sides = [[NUMBER.sub("0", line) for line in side] for side in (shown, lines)]
    for block in difflib.SequenceMatcher(None, *sides, autojunk=False).get_matching_blocks():
        olds[block.b:block.b + block.size] = shown[block.a:block.a + block.size]
    return list(zip(olds, lines))


def renewed(shown, output, varies=()):
    """What to show instead: where lines were left out, those most like the ones that were shown."""
    lines, pieces = output_lines(output), [[]]
    for line in shown:
        if line.strip() == "...":
            pieces.append([])
        else:
            pieces[-1].append(line)
    if len(pieces) == 1:
        return [line if old is None else renewed_line(old, line, varies) for old, line in counterparts(shown, lines)]
    result, at = [], 0
    for number, piece in enumerate(pieces):
        last = max(at, len(lines) - len(piece))
        places = [at] if number == 0 else [last] if number == len(pieces) - 1 else range(at, last + 1)
        if piece:
            scores = [(-sum(likeness(line, lines[place + i]) for i, line in enumerate(piece) if place + i < len(lines)), place) for place in places]
            at = min(scores)[1]
            result += [renewed_line(line, lines[at + i], varies) for i, line in enumerate(piece) if at + i < len(lines)]
            at += len(piece)
        if number < len(pieces) - 1:
            result.append("...")
    return result
