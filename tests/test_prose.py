"""Tests of tests/prose.py: it finds comments that begin wrongly, and sentences and phrases at which a reader stops."""

import pathlib

import pytest

import prose


def found(tmp_path: pathlib.Path, name: str, text: str) -> list[str]:
    (tmp_path / name).write_text(text)
    return [line.removeprefix(f"{tmp_path / name}:") for line in prose.check(tmp_path / name)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/// What a sample is.\nstruct Sample;\n", ["1: begins with `What`: "]),
        ("//! Whether it is open.\n", ["1: begins with `Whether`: `True if ...`"]),
        ('#[doc = "Where it lies."]\nconst PLACE: u8 = 0;\n', ["1: begins with `Where`: "]),
        ("/// Reads a file.\n///\n/// # Errors\n/// What the system says.\nfn read() {}\n", ["4: begins with `What`: "]),
        ("/// How many.\n/// Of what.\nfn a() {}\n    /// So it is.\n    fn b() {}\n", ["1: begins with `How`: ", "4: begins with `So`: "]),
        ("/// Takes bytes,\n/// so many, and one that is no\n/// number.\nfn take() {}\n", ["2: `is no `: ", "2: `so many`: "]),
        ("/// Gives a device that has no such memory.\nfn give() {}\n", ["1: `has no such`: "]),
        (f"/// Reads a file.\n///\n/// Then{' and then' * 15}.\nfn read() {{}}\n", ["3: a sentence of 31 words, "]),
        ("// A count.\n" * 5, ["1: 5 lines: at most 4"]),
        ("/// A count of\n" * 5 + "const COUNT: u8 = 0;\n", ["1: a paragraph of 5 lines: at most 4"]),
    ],
)
def test_a_comment_of_rust_that_breaks_a_rule_is_found(tmp_path: pathlib.Path, text: str, said: list[str]) -> None:
    came = found(tmp_path, "lib.rs", text)
    assert len(came) == len(said) and all(map(str.startswith, came, said)), came


def test_a_docstring_that_breaks_a_rule_is_found(tmp_path: pathlib.Path) -> None:
    text = '"""A module."""\n\n\ndef size() -> int:\n    """How large it is."""\n\n\nclass Grid:\n    """A grid.\n\n    It is no list.\n    """\n'
    came = found(tmp_path, "grid.py", text)
    assert [line.partition(": ")[0] for line in came] == ["5", "11"]


def test_a_page_that_breaks_a_rule_is_found(tmp_path: pathlib.Path) -> None:
    text = f"# A page\n\nIt is no list.\n\n```\nit is no prose\n```\n\n| it is | no |\n\nThen{' and then' * 15}.\n"
    came = found(tmp_path, "page.md", text)
    assert [line.partition(": ")[0] for line in came] == ["3", "11"]


@pytest.mark.parametrize(
    "text",
    [
        "/// True if there is no sample, as what came says.\nfn is_empty() {}\n",
        "// What a plain comment begins with is not looked at.\n",
        "//! A module.\n" * 6,
        f"/// Reads:\n///\n/// - {'one ' * 20}\n/// - {'two ' * 20}\nfn read() {{}}\n",
        "//// Where a line of four slashes is.\n",
        "/// Reads it.\n///\n/// # Errors\n/// If it can't be read.\nfn read() {}\n",
        "/// Names an error of the log, \"it is no number\", and `so many`.\nfn name() {}\n",
        "/// Runs:\n///\n/// ```\n/// // What is no prose: so many.\n/// ```\nfn run() {}\n",
        "/// Takes a message that is no longer needed, and no more: there are so many that some wait.\nfn take() {}\n",
        "/// `Where` is a variant.\nenum Place {}\n",
    ],
)
def test_a_comment_that_keeps_the_rules_is_left_alone(tmp_path: pathlib.Path, text: str) -> None:
    assert found(tmp_path, "lib.rs", text) == []
