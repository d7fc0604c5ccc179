"""The reader of pages itself: what it takes for a block, a match, an anchor."""

import pytest
from docs_markdown import anchor, blocks, commands, links, matches, prose, regions, with_regions

PAGE = """# A page

Some `[text](no-link.md)` and a [link](other.md#part).

```python
# shop/agent.py
x = 1
```

```python
print(x)
```
```text
1
```

<!-- not run: needs a key -->
```console
$ spine run "Hello"
Hello!
$ spine log
…
```
<!-- generated: thing -->
old
<!-- end -->
"""


def test_blocks_know_what_they_are() -> None:
    """A path in the first line makes a file, a comment before the block keeps it from running."""
    file, code, output, console = blocks(PAGE)
    assert (file.path, code.path) == ("shop/agent.py", None)
    assert (output.language, output.follows, code.follows) == ("text", True, True)
    assert console.not_run == "needs a key"
    assert not console.follows
    assert [(c.text, c.output) for c in commands(console)] == [('spine run "Hello"', "Hello!"), ("spine log", "…")]


def test_prose_has_no_code() -> None:
    """Lines of blocks and comments are no prose."""
    assert [line for _, line in prose(PAGE) if line] == [
        "# A page",
        "Some `[text](no-link.md)` and a [link](other.md#part).",
        "old",
    ]
    assert list(links(PAGE)) == [(3, "other.md#part")]


def test_a_region_is_replaced_between_its_marks() -> None:
    """Writing a region leaves the rest of the page alone."""
    assert regions(PAGE) == {"thing": "old\n"}
    assert with_regions(PAGE, {"thing": "new\n"}) == PAGE.replace("old", "new")


@pytest.mark.parametrize(
    ("expected", "actual", "equal"),
    [
        ("a\nb", "a  \nb\n\n", True),
        ("a\nb", "a\nc", False),
        ("a", "a\nb", False),
        ("a\n…", "a\nb\nc", True),
        ("a\n…", "b", False),
        ("…\nc", "a\nb\nc", True),
        ("head 41 …", "head 41 9f1c", True),
        ("head 41 …", "head 42 9f1c", False),
        ("head 41 … end", "head 41 9f\n1c end", False),
        ("", "a", False),
    ],
)
def test_outputs_are_compared_line_by_line(expected: str, actual: str, equal: bool) -> None:
    """Only `…` leaves something open."""
    assert matches(expected, actual) is equal


@pytest.mark.parametrize(
    ("heading", "fragment"),
    [("`key_missing`", "key_missing"), ("What is not here yet", "what-is-not-here-yet"), ("A, B", "a-b")],
)
def test_anchors(heading: str, fragment: str) -> None:
    """Anchors are made as the usual renderers make them."""
    assert anchor(heading) == fragment
