import pytest

from bringup.parse.code_block import extract_function

BODY = "def add(a, b):\n    return a + b"


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{BODY}\n```",
        f"Sure!\n\n```py\n{BODY}\n```\nIt adds two numbers.",
        f"```\n{BODY}\n```",
        f"```python\n{BODY}",
        f"```python\n{BODY}\n\nprint(add(1,",
        BODY,
        f"Here it is:\n\n{BODY}\n\nThis returns the sum of both.",
        f"```bash\npip install x\n```\n```python\n{BODY}\n```",
        f"```python\nadd(1, 2)\n```\nbefore\n```python\n{BODY}\n```",
        f"1. Like so:\n   ```python\n{BODY}\n   ```",
    ],
)
def test_the_function_is_found_and_runs(text):
    names: dict = {}
    exec(extract_function(text, "add"), names)
    assert names["add"](2, 3) == 5


def test_imports_before_the_function_are_kept():
    source = extract_function("```python\nimport math\n\ndef f(x):\n    return math.sqrt(x)\n```", "f")
    assert source.startswith("import math")


@pytest.mark.parametrize(
    "text", ["", "I cannot.", "```python\ndef other(a): pass\n```", "def adder(a): pass"]
)
def test_no_such_function(text):
    assert extract_function(text, "add") is None


def test_what_does_not_parse_is_returned_so_that_running_it_says_why():
    assert "def add(a, b) return" in extract_function("```python\ndef add(a, b) return a\n```", "add")
