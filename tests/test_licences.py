"""The licence check itself: what it lets pass and what it stops."""

import pytest

from licences import allows, problem

ALLOWED = {"MIT", "Apache-2.0", "Unicode-3.0"}


@pytest.mark.parametrize(
    ("expression", "met"),
    [
        ("MIT", True),
        ("GPL-3.0", False),
        ("EPL-2.0 OR Apache-2.0", True),
        ("EPL-2.0 AND Apache-2.0", False),
        ("GPL-3.0/MIT", True),
        ("(GPL-3.0 OR Apache-2.0) AND Unicode-3.0", True),
        ("GPL-3.0 OR Apache-2.0 AND ISC", False),
        ("MIT AND (GPL-3.0 OR ISC)", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("Apache-2.0 WITH Other-exception", False),
    ],
)
def test_expressions(expression, met):
    assert allows(expression, ALLOWED) is met


@pytest.mark.parametrize("expression", ["", "MIT OR", "(MIT", "MIT)", "MIT Apache-2.0", "AND MIT"])
def test_what_is_no_expression_is_an_error(expression):
    with pytest.raises(ValueError):
        allows(expression, ALLOWED)


@pytest.mark.parametrize(
    ("name", "licence", "said"),
    [
        ("x", None, "names no licence"),
        ("x", "MPL-2.0", "MPL-2.0 is not allowed"),
        ("x", "MIT OR", "can't be read"),
        ("colored", "MPL-2.0", None),
        ("x", "MIT", None),
    ],
)
def test_problems_are_named(name, licence, said):
    found = problem({"name": name, "version": "1.0.0", "license": licence})
    assert (found is None) if said is None else (said in found)
