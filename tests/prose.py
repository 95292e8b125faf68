"""Checks that comments and pages can be read at once: `prose.py`, exit code 1 if one can't.

Doc comments of Rust (`///`, `//!`, `#[doc = "..."]`) and docstrings of Python begin with a verb or a concrete noun. The first
words then say what a thing is or does, in the list of an editor, too. The rules are

- `FIRST_WORDS`, for the first word of a doc comment and of its section `# Errors`,
- `PHRASES`, for all comments and pages,
- at most `WORDS` words in a sentence of them,
- at most `LINES` lines in a comment, or in a paragraph of an item's doc comment.

Names in backquotes, rows of tables and blocks of code do not count. A rule has no exceptions: a sentence that breaks it is
written anew.
"""

import ast
import pathlib
import re
import subprocess
import sys
import typing

WORDS = 30
LINES = 4
# A first word, and what to write in its place.
FIRST_WORDS = {
    **dict.fromkeys(["What", "That", "Those", "It", "They", "There"], "name the thing: `Samples that ...`, `The text of ...`"),
    **dict.fromkeys(["Its", "Their", "This", "These", "Both", "Others", "None", "Here"], "name the thing: `Name of the stream.`"),
    **dict.fromkeys(["How", "Which", "Why"], "name the quantity or the choice: `Number of ...`, `The reason why ...`"),
    **dict.fromkeys(["By", "From", "To", "In", "On", "At", "As", "Up", "With", "Without", "For", "Behind", "Beside", "Beyond"], "begin with the noun or the verb: `Lead of ...`, `A number in 0..1`"),
    **dict.fromkeys(["Within", "Between", "Over", "Under", "Along", "Not", "Only", "Too"], "begin with the noun or the verb: `Points within ...`"),
    "Where": "name the place (`Offset of ...`), or begin with the effect: `Stops if ...`",
    **dict.fromkeys(["When", "After", "Before", "Since", "Until", "Once", "While"], "name the time (`Time of ...`), or begin with the effect: `Stops when ...`"),
    "Whether": "`True if ...`",
    **dict.fromkeys(["If", "So", "Because", "Unless"], "begin with the effect: `Stops if ...`"),
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
BLOCK = re.compile(r"```.*?(?:```|\Z)|<!--.*?-->", re.S)
CODE = re.compile(r"`[^`]*`|\"[^\"\n]*\"|<[^<>\n]*>|\]\([^)\n]*\)", re.S)
# The end of a sentence.
END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[^a-z\s])")
# Where a paragraph ends without an empty line: a heading, an element of a list, a row of a table.
ELEMENT = re.compile(r"\s*(?:#|[-*|] |\d+\. )")


class Comment(typing.NamedTuple):
    """A comment or a page: its kind, the number of its first line, and its lines without the marks of a comment."""

    kind: typing.Literal["module", "item", "plain", "page"]
    line: int
    lines: list[str]


def marked(text: str, marks: dict[str, str]) -> typing.Iterator[Comment]:
    """Comments of whole lines; `marks` are the kinds of comments by their marks, a longer mark before its beginning."""
    mark, comment = None, None
    pattern = re.compile(rf"\s*({'|'.join(map(re.escape, marks))})(?: (.*)|$)|\s*#!?\[doc = \"(.*)\"\]")
    for number, line in enumerate([*text.splitlines(), ""], 1):
        part = pattern.match(line)
        found = part and (part[1] or "#[doc]")
        if comment and found != mark:
            yield comment
            comment = None
        if part:
            comment = comment or Comment(marks.get(found, "item"), number, [])
            comment.lines.append((part[2] if part[1] else part[3]) or "")
        mark = found


def rust(text: str) -> typing.Iterator[Comment]:
    """Comments of a file of Rust, CUDA or C++."""
    return marked(text, {"///": "item", "//!": "module", "//": "plain"})


def hashed(text: str) -> typing.Iterator[Comment]:
    """Comments of a file whose comments begin with `#`. The one at its top is about the whole file."""
    for comment in marked(text, {"#": "plain"}):
        yield comment._replace(kind="page") if comment.line <= 2 else comment


def python(text: str) -> typing.Iterator[Comment]:
    """Docstrings and comments of a file of Python."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring is not None:
                yield Comment("module" if isinstance(node, ast.Module) else "item", node.body[0].lineno, docstring.splitlines())
    yield from hashed(text)


def page(text: str) -> typing.Iterator[Comment]:
    """The whole of a page in Markdown."""
    yield Comment("page", 1, text.splitlines())


READERS = {
    **dict.fromkeys([".rs", ".cu", ".cuh", ".h", ".cpp"], rust),
    **dict.fromkeys([".py", ".pyi"], python),
    **dict.fromkeys([".yml", ".yaml", ".toml", "", ".mk"], hashed),
    ".md": page,
}


def first_words(lines: list[str]) -> typing.Iterator[tuple[int, str]]:
    """Lines of a doc comment whose first word does not say what the thing is or does."""
    first, errors = True, False
    for offset, line in enumerate(lines):
        if line.startswith("#"):
            first, errors = line == "# Errors", line == "# Errors"
        elif line and first:
            word = re.match(r"[A-Za-z]*", line)[0]
            if word in FIRST_WORDS and not (errors and word == "If"):
                yield offset, f"begins with `{word}`: {FIRST_WORDS[word]}"
            first = False


def paragraphs(lines: list[str]) -> typing.Iterator[tuple[int, list[str]]]:
    """Paragraphs of prose, elements of lists and headings, each with the offset of its first line."""
    part = []
    for offset, line in enumerate([*lines, ""]):
        if part and (not line.strip() or ELEMENT.match(line) or part[-1].startswith("#")):
            yield offset - len(part), part
            part = []
        if line.strip() and not line.lstrip().startswith("|"):
            part.append(line)


def problems(comment: Comment) -> typing.Iterator[tuple[int, str]]:
    """Lines of a comment that break a rule, and what to do about each."""
    if comment.kind in ("module", "item"):
        yield from first_words(comment.lines)
    if comment.kind == "plain" and len(comment.lines) > LINES:
        yield 0, f"{len(comment.lines)} lines: at most {LINES} are read beside code"
    text = BLOCK.sub(lambda block: re.sub(r"[^\n]", "", block[0]), "\n".join(comment.lines))
    prose = CODE.sub(lambda code: re.sub(r"[^\n]", "x", code[0]), text)
    for phrase, instead in PHRASES.items():
        for found in re.finditer(phrase, prose.replace("\n", " "), re.I):
            yield prose.count("\n", 0, found.start()), f"`{found[0]}`: {instead}"
    for offset, lines in paragraphs(prose.split("\n")):
        if comment.kind == "item" and len(lines) > LINES:
            yield offset, f"a paragraph of {len(lines)} lines: at most {LINES} are read at once"
        for sentence in END.split(" ".join(lines)):
            words = sentence.split()
            if len(words) > WORDS:
                yield offset, f"a sentence of {len(words)} words, {' '.join(words[:5])} ...: at most {WORDS}, one idea each"


def check(file: pathlib.Path) -> list[str]:
    """The problems of a file, as `file:line: problem`."""
    comments = READERS[file.suffix](file.read_text())
    found = [(comment.line + offset, problem) for comment in comments for offset, problem in problems(comment)]
    return [f"{file}:{line}: {problem}" for line, problem in sorted(found)]


if __name__ == "__main__":
    listed = subprocess.check_output(["git", "ls-files", "-z"], text=True).split("\0")
    files = [file for file in map(pathlib.Path, listed) if file.suffix in READERS and file.is_file()]
    found = [problem for file in files for problem in check(file)]
    if found:
        sys.exit("\n".join([*found, f"prose.py: {len(found)} places to write anew"]))
    print(f"prose: the comments and pages of {len(files)} files are read at once, as far as their words and lengths say it")
