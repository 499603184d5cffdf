"""The guide is a notebook: its cells run in order, in one namespace."""

from __future__ import annotations

from tests.house.markdown import fences, pages
from tests.spark.reading import url


def test_every_snippet_of_the_guide_runs(spark, ours, tmp_path):
    page = pages()["docs/spark.md"]
    cells = [each.body for each in fences(page, "python")]
    assert cells
    namespace: dict[str, object] = {}
    try:
        for cell in cells:
            code = cell.replace("redis://127.0.0.1:6379", url(ours))
            code = code.replace("/tmp/guide", str(tmp_path))
            above = page[: page.index(cell)].count("\n")  # so that a failure names the page's line
            exec(compile("\n" * above + code, "docs/spark.md", "exec"), namespace)
    finally:
        server = namespace.get("server")
        if server is not None:
            server.close()
