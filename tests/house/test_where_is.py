"""`docs/where-is.md` names files and what stands in them: both are there."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.house.markdown import code_spans, pages
from tests.support.servers import REPOSITORY

_QUESTION = re.compile(
    r"^\d+\. \*\*(?P<question>.+?)\*\*(?P<answer>.*?)(?=^\d+\. |^## |\Z)", re.M | re.S
)
_PATH = re.compile(r"[\w/]+\.py")
_NAME = re.compile(r"\w+(?:\.\w+)?")


def answers() -> dict[str, str]:
    """Question and answer, in the order of the page."""
    page = pages()["docs/where-is.md"]
    return {each["question"]: each["answer"] for each in _QUESTION.finditer(page)}


@cache
def names_in(path: str) -> frozenset[str]:
    """Functions and classes of a module, and `Class.method`."""
    found = set()
    for node in ast.parse((REPOSITORY / "src" / "anabranch" / path).read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found.update(
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            )
    return frozenset(found)


def test_there_are_thirty_questions_or_more_with_numbers_in_order() -> None:
    numbers = re.findall(r"^(\d+)\. \*\*", pages()["docs/where-is.md"], re.M)
    assert numbers == [str(number) for number in range(1, len(answers()) + 1)]
    assert len(numbers) >= 30
    assert all(question.startswith("Where ") for question in answers())


def test_every_answer_names_a_file_and_what_stands_in_it() -> None:
    for question, answer in answers().items():
        path = ""
        named = 0
        for span in code_spans(answer):
            if _PATH.fullmatch(span):
                path = span
                assert (REPOSITORY / "src" / "anabranch" / path).is_file(), f"{question} {path}"
            elif path and _NAME.fullmatch(span):
                assert span in names_in(path), f"{question} {span} is not in {path}"
                named += 1
        assert named, f"{question} The answer names no function or class"
