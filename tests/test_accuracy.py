"""Interpolated values are as near to the truth and to SciPy's as docs/accuracy.md says; `make accuracy` writes its tables."""

import accuracy
import convert


def test_the_page_on_accuracy_says_what_comes_out(tmp_path):
    tables, bounds = accuracy.measure(tmp_path, convert.DATA)
    assert [bound for bound in bounds if not bound.holds] == []
    page = accuracy.PAGE.read_text()
    written = [table.marker for table in tables if table.is_whole]
    assert written if convert.DATA is None else len(written) == len(tables)
    for table in tables:
        assert f"<!-- {table.marker} -->" in page
        if table.is_whole:
            assert "\n".join(table.lines) in page, f"{table.marker}: run make accuracy"
