"""Tests that the stubs in _native.pyi have the names, arguments and defaults of the native module."""

import ast
import inspect
import pathlib

import robocache
from robocache import _native

STUBS = ast.parse((pathlib.Path(robocache.__file__).parent / "_native.pyi").read_text())
# Types that only type checkers see.
TYPES = {"Source"}
# Python gives every class these.
IGNORED = {"__module__", "__doc__", "__new__", "__repr__", "__dict__", "__weakref__", "__iter__", "__next__"}


def arguments(function: ast.FunctionDef) -> list[tuple[str, bool, bool]]:
    """Returns for each argument of a function its name, True if it has a default, and True if it is keyword-only."""
    of = function.args
    optional = [False] * (len(of.args) - len(of.defaults)) + [True] * len(of.defaults)
    plain = [(each.arg, has, False) for each, has in zip(of.args, optional, strict=True) if each.arg not in ("self", "cls")]
    return plain + [(each.arg, default is not None, True) for each, default in zip(of.kwonlyargs, of.kw_defaults, strict=True)]


def present(function) -> list[tuple[str, bool, bool]]:
    parameters = inspect.signature(function).parameters.values()
    return [
        (each.name, each.default is not each.empty, each.kind is each.KEYWORD_ONLY) for each in parameters if each.name not in ("self", "cls")
    ]


def test_functions():
    stubs = {node.name: node for node in STUBS.body if isinstance(node, ast.FunctionDef)}
    there = {name: value for name, value in vars(_native).items() if inspect.isbuiltin(value)}
    assert stubs.keys() == there.keys()
    for name, stub in stubs.items():
        assert arguments(stub) == present(there[name]), name


def test_classes():
    stubs = {node.name: node for node in STUBS.body if isinstance(node, ast.ClassDef) and node.name not in TYPES}
    there = {name: value for name, value in vars(_native).items() if inspect.isclass(value)}
    assert stubs.keys() == there.keys()
    for name, stub in stubs.items():
        methods = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
        members = vars(there[name])
        assert methods.keys() - IGNORED == members.keys() - IGNORED, name
        for method, node in methods.items():
            is_property = any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)
            assert is_property == inspect.isdatadescriptor(members[method]), (name, method)
            if not is_property and method not in IGNORED:
                assert arguments(node) == present(getattr(there[name], method)), (name, method)


def test_public_names():
    for name in robocache.__all__:
        assert getattr(robocache, name) is not None
        assert inspect.getdoc(getattr(robocache, name)), name
    assert (pathlib.Path(robocache.__file__).parent / "py.typed").exists()
