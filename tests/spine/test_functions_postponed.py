"""Tools in a module whose annotations are strings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import attrs
import pytest

from spine import functions
from spine.errors import ToolSchemaInvalid
from spine.functions import ToolContext, tool
from spine.messages import TextBlock

if TYPE_CHECKING:
    from shop.backend import Shop

pytestmark = pytest.mark.anyio


@attrs.frozen
class Item:
    sku: str


@tool
async def order(item: Item, count: Annotated[int, "from 1"], context: ToolContext[int], also: list[Item] = []) -> str:  # noqa: B006
    """Order something."""
    return f"{count} {item.sku} {context.deps} {also}"


@tool
def qualified(text: str, context: functions.ToolContext) -> Shop:
    return f"{text} {context.session}"


@tool
def typed_for_checkers_only(context: ToolContext[Shop]) -> str:
    """The type of the deps is imported for type checkers only; nothing here needs it."""
    return str(context.deps)


async def test_string_annotations_are_resolved():
    outcome = await order.invoke({"item": {"sku": "x"}, "count": 2, "also": [{"sku": "y"}]}, deps=5)
    assert outcome.content == (TextBlock(text="2 x 5 [Item(sku='y')]"),)
    properties = order.tool.definition.parameters["properties"]
    assert properties["count"] == {"type": "integer", "description": "from 1"}
    assert properties["item"] == {"$ref": "#/$defs/Item"}


async def test_a_context_is_found_in_a_string():
    assert (await qualified.invoke({"text": "a"})).content == (TextBlock(text="a test"),)
    assert (await typed_for_checkers_only.invoke({}, deps=3)).content == (TextBlock(text="3"),)


def test_a_type_that_is_not_there_is_named():
    def probe(shop: Shop) -> None:
        pass

    with pytest.raises(ToolSchemaInvalid, match='type "Shop" of parameter "shop" cannot be resolved'):
        tool(probe)
