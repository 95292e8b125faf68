"""Checks how doc comments begin, and that they avoid phrases at which a reader stops: `prose.py`, exit code 1 if one does not.

Doc comments of Rust (`///`, `//!`, `#[doc = "..."]`) and docstrings of Python begin with a verb or a concrete noun: what a
thing is or does is known by the first words, in a list of an editor, too. The rules are `FIRST_WORDS`, for the first word of
a comment and of its section `# Errors`, and `PHRASES`, for all of its prose. Names in backquotes and blocks of code are left out.
"""

import ast
import pathlib
import re
import subprocess
import sys
import typing

# A first word, and what to write in its place.
FIRST_WORDS = {
    **dict.fromkeys(["What", "That", "Those", "It", "They", "There"], "name the thing: `Samples that ...`, `The text of ...`"),
    **dict.fromkeys(["How", "Which", "Why"], "name the quantity or the choice: `Number of ...`, `The reason why ...`"),
    "By": "name the quantity: `Lead of ...`",
    "Where": "name the place (`Offset of ...`), or begin with the effect: `Stops if ...`",
    "When": "name the time (`Time of ...`), or begin with the effect: `Stops when ...`",
    "Whether": "`True if ...`",
    **dict.fromkeys(["If", "So"], "begin with the effect: `Stops if ...`"),
    "Of": "begin with the noun: `Values of ...`",
    **dict.fromkeys(["And", "and", "But", "but", "Or", "or", "Nor", "Also", "plus"], "make it a sentence that stands alone"),
}
# Words that follow "no" in a comparison: "is no longer".
COMPARATIVES = "longer|more|less|fewer|newer|older|later|sooner|earlier|further|closer|nearer|wider|larger|smaller|higher|lower|faster"
# A phrase, and what to write in its place.
PHRASES = {
    r"so (?:many|few|much)\b(?! (?:that|as)\b)": "name the number: `count bytes`, `a number of ...`",
    rf"(?<!there )\b(?:is|are) no (?!(?:{COMPARATIVES})\b)": "`is not a ...`",
    r"\b(?:has|have) no such\b": "`does not have ...`, with the noun",
}
# The parts of a text that are not prose.
CODE = re.compile(r"```.*?(?:```|\Z)|`[^`]*`|\"[^\"\n]*\"", re.S)


class Comment(typing.NamedTuple):
    """A doc comment: the number of its first line, and its lines without the marks of a comment."""

    line: int
    lines: list[str]


def rust(text: str) -> typing.Iterator[Comment]:
    """The doc comments of a Rust file."""
    mark, comment = None, Comment(0, [])
    for number, line in enumerate([*text.splitlines(), ""], 1):
        part = re.match(r"\s*(//!|///(?!/)) ?(.*)|\s*#!?\[doc = \"(.*)\"\]", line)
        found = part and (part[1] or "#[doc]")
        if mark and found != mark:
            yield comment
        if part:
            if found != mark:
                comment = Comment(number, [])
            comment.lines.append(part[2] if part[1] else part[3])
        mark = found


def python(text: str) -> typing.Iterator[Comment]:
    """The docstrings of a Python file."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring is not None:
                yield Comment(node.body[0].lineno, docstring.splitlines())


def problems(comment: Comment) -> typing.Iterator[tuple[int, str]]:
    """The lines of a comment that break a rule, and what to do about each."""
    first, errors = True, False
    for offset, line in enumerate(comment.lines):
        if line.startswith("#"):
            first, errors = line == "# Errors", line == "# Errors"
        elif line and first:
            word = re.match(r"[A-Za-z]*", line)[0]
            if word in FIRST_WORDS and not (errors and word == "If"):
                yield offset, f"begins with `{word}`: {FIRST_WORDS[word]}"
            first = False
    prose = CODE.sub(lambda code: re.sub(r"[^\n]", "x", code[0]), "\n".join(comment.lines))
    for phrase, instead in PHRASES.items():
        for found in re.finditer(phrase, prose.replace("\n", " "), re.I):
            yield prose.count("\n", 0, found.start()), f"`{found[0]}`: {instead}"


def check(file: pathlib.Path) -> list[str]:
    """The problems of a file, as `file:line: problem`."""
    comments = rust if file.suffix == ".rs" else python
    found = [(comment.line + offset, problem) for comment in comments(file.read_text()) for offset, problem in problems(comment)]
    return [f"{file}:{line}: {problem}" for line, problem in sorted(found)]


if __name__ == "__main__":
    listed = subprocess.check_output(["git", "ls-files", "-z", "*.rs", "*.py", "*.pyi"], text=True).split("\0")
    files = [pathlib.Path(file) for file in listed if file and pathlib.Path(file).is_file()]
    found = [problem for file in files for problem in check(file)]
    if found:
        sys.exit("\n".join([*found, f"prose.py: {len(found)} comments to write anew"]))
    print(f"prose: the comments of {len(files)} files begin with a verb or a noun")
