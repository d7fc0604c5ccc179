"""`@tool`: what a model is told of a function, how its JSON becomes arguments, and what is refused at decoration."""

import dataclasses
import datetime
import enum
import functools
import inspect
import re
import threading
import uuid
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import anyio
import attrs
import msgspec
import pytest

from spine.errors import IdInvalid, ToolSchemaInvalid, UsageError
from spine.functions import FunctionTool, ToolContext, as_tool, check_tool, tool
from spine.messages import JsonBlock, TextBlock
from spine.tools import Tool, ToolDefinition
from spine.values import Secret, ValueRefused, encode

pytestmark = pytest.mark.anyio


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Item:
    """One line of an order."""

    sku: str
    count: int = 1


@dataclasses.dataclass
class Order:
    items: list[Item]
    note: str | None = None
    parts: "list[Order]" = dataclasses.field(default_factory=list)


class Options(TypedDict):
    gift: bool
    card: NotRequired[str]


class Shop:
    def __init__(self):
        self.refunds = []


@tool(effect="idempotent", approval="ask", approval_reason="refunds need a person", timeout_s=20)
async def refund(order_id: str, amount_cents: Annotated[int, "cents, never euros"], context: ToolContext[Shop]) -> str:
    """Pay an order back.

    Goes to the card that paid.

    Args:
        order_id: the number printed on
            the invoice
        amount_cents: this text loses against the annotation
    """
    context.deps.refunds.append((order_id, amount_cents, context.idempotency_key))
    return f"refunded {amount_cents}"


# -------------------------------------------------------------------------------------------- what a tool is made of


def test_a_tool_says_what_the_function_says():
    made = refund.tool
    assert made.name == refund.name == "refund"
    assert made.definition.description == "Pay an order back."
    assert encode(made.definition.parameters).decode() == (
        '{"additionalProperties":false,"properties":{'
        '"amount_cents":{"description":"cents, never euros","type":"integer"},'
        '"order_id":{"description":"the number printed on the invoice","type":"string"}},'
        '"required":["order_id","amount_cents"],"type":"object"}'
    )
    assert (made.effect, made.parallel, made.approval, made.timeout_s) == ("idempotent", False, "ask", 20)


def test_defaults_are_the_careful_ones():
    @tool
    def bare() -> None:
        pass

    made = bare.tool
    assert (made.effect, made.parallel, made.timeout_s, made.approval) == ("irreversible", False, None, "never")
    assert made.max_result_bytes == 64 * 1024
    assert made.definition.description == ""
    assert encode(made.definition.parameters) == b'{"additionalProperties":false,"properties":{},"type":"object"}'


@pytest.mark.parametrize(
    ("options", "parallel"),
    [
        ({}, False),
        ({"effect": "read_only"}, True),
        ({"effect": "idempotent"}, False),
        ({"effect": "read_only", "parallel": False}, False),
        ({"effect": "irreversible", "parallel": True}, True),
    ],
)
def test_only_read_only_tools_overlap_unless_told(options, parallel):
    @tool(**options)
    def probe() -> None:
        pass

    assert probe.tool.parallel is parallel


async def test_the_function_stays_what_it_was():
    shop = Shop()
    context = ToolContext(deps=shop, session="s", call="t1s1c1")
    assert await refund("1017", 1290, context) == "refunded 1290"
    assert await refund(order_id="1017", amount_cents=1290, context=context) == "refunded 1290"
    assert shop.refunds == [("1017", 1290, "s/t1s1c1")] * 2


def test_a_plain_function_stays_plain():
    @tool
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8
    with pytest.raises(TypeError, match="double"):
        double()


def test_it_introspects_as_the_function_it_wraps():
    assert refund.__name__ == "refund"
    assert refund.__doc__.startswith("Pay an order back.")
    assert refund.__module__ == __name__
    assert list(inspect.signature(refund).parameters) == ["order_id", "amount_cents", "context"]
    assert re.fullmatch(r"<tool refund \(test_functions\.py:\d+\)>", repr(refund))


@pytest.mark.parametrize("field", ["tool", "where", "name", "__wrapped__", "other"])
def test_a_tool_is_frozen(field):
    with pytest.raises((attrs.exceptions.FrozenInstanceError, AttributeError)):
        setattr(refund, field, "changed")
    with pytest.raises((attrs.exceptions.FrozenInstanceError, AttributeError, TypeError)):
        setattr(refund.tool, field, "changed")
    with pytest.raises(TypeError):
        refund.tool.definition.parameters["properties"]["order_id"]["type"] = "number"


def test_a_description_and_a_name_can_be_given():
    @tool(name="orders.find", description="Find it.")
    def find() -> None:
        """Something else."""

    assert (find.name, find.tool.definition.description) == ("orders.find", "Find it.")


DOCSTRINGS = (
    ("One line.", "One line.", None),
    ("Two\n    lines.\n\n    More.", "Two lines.", None),
    ("Sum.\n\n    Args:\n        city: the town", "Sum.", "the town"),
    (
        "Sum.\n\n    Args:\n        city (str): the town\n            and more\n\n    Returns: x",
        "Sum.",
        "the town and more",
    ),
    ("Sum.\n    city: the town", "Sum.", "the town"),
    ("Sum.\n\n    city: the town", "Sum.", "the town"),
    ("Sum.\n\n    - city: the town\n    - town: no", "Sum.", "the town"),
    ("Args:\n        city:\n            the town", "", "the town"),
    ("", "", None),
)


@pytest.mark.parametrize(("text", "summary", "about_city"), DOCSTRINGS)
def test_docstrings_give_summary_and_parameters(text, summary, about_city):
    def probe(city: str) -> None:
        pass

    probe.__doc__ = text
    made = tool(probe).tool.definition
    assert made.description == summary
    assert made.parameters["properties"]["city"].get("description") == about_city


# --------------------------------------------------------------------------------------------- types, both ways

UUID = uuid.UUID(int=7)
TYPES = (
    (str, "a", "a"),
    (int, 3, 3),
    (float, 2, 2.0),
    (bool, True, True),
    (str | None, None, None),
    (int | str, "a", "a"),
    (list[int], [1, 2], [1, 2]),
    (list, [1, {"a": [2]}], [1, {"a": [2]}]),
    (dict, {"a": [1]}, {"a": [1]}),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (tuple[int, str], [1, "a"], (1, "a")),
    (set[str], ["a"], {"a"}),
    (Any, {"a": [1]}, {"a": [1]}),
    (Literal["C", "F"], "F", "F"),
    (Colour, "blue", Colour.BLUE),
    (Item, {"sku": "x"}, Item("x")),
    (Order, {"items": [{"sku": "x", "count": 2}]}, Order([Item("x", 2)])),
    (Order, {"items": [], "parts": [{"items": []}]}, Order([], parts=[Order([])])),
    (Options, {"gift": True}, {"gift": True}),
    (datetime.date, "2026-01-02", datetime.date(2026, 1, 2)),
    (datetime.datetime, "2026-01-02T03:04:05Z", datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)),
    (datetime.timedelta, "PT90S", datetime.timedelta(seconds=90)),
    (uuid.UUID, str(UUID), UUID),
    (bytes, "aGk=", b"hi"),
    (Annotated[int, msgspec.Meta(ge=1, description="from 1")], 1, 1),
)


@pytest.mark.parametrize(("kind", "sent", "received"), TYPES, ids=[f"{t[0]}-{t[1]}" for t in TYPES])
async def test_json_becomes_the_annotated_type(kind, sent, received):
    seen = []

    def probe(value) -> None:
        seen.append(value)

    probe.__annotations__["value"] = kind
    outcome = await tool(probe).invoke({"value": sent})
    assert outcome.status == "ok", outcome.content
    assert seen == [received]
    assert type(seen[0]) is type(received)


async def test_what_a_handler_gets_is_its_own_to_change():
    """Stored arguments are frozen; a handler gets plain lists and dicts."""

    @tool
    def sort(values: list[int], free: Any) -> list[int]:
        free["more"] = values.pop()
        values.sort()
        return values

    outcome = await sort.invoke({"values": [3, 1, 2], "free": {"a": [1]}})
    assert outcome.content == (JsonBlock(value=[1, 3]),)


REFUSED_ARGUMENTS = (
    ({"order_id": 1017, "amount_cents": 1}, "error: order_id: expected string, found integer 1017"),
    ({"order_id": "1"}, 'error: missing "amount_cents"'),
    (
        {"order_id": "1", "amount_cents": 1, "town": 2},
        'error: unknown argument "town"; known: order_id, amount_cents',
    ),
    ({"order_id": "1", "amount_cents": 1, "context": 2}, 'error: unknown argument "context"; known: order_id'),
    ({"order_id": "1", "amount_cents": 1.0}, "error: amount_cents: expected integer, found number"),
    ({"order_id": "1", "amount_cents": True}, "error: amount_cents: expected integer, found boolean true"),
)


@pytest.mark.parametrize(("arguments", "text"), REFUSED_ARGUMENTS, ids=[text for _, text in REFUSED_ARGUMENTS])
async def test_arguments_that_do_not_fit_are_told_and_nothing_runs(arguments, text):
    shop = Shop()
    outcome = await refund.invoke(arguments, deps=shop)
    assert outcome.status == "error"
    assert outcome.error.kind == "invalid_arguments"
    assert outcome.content[0].text.startswith(text)
    assert shop.refunds == []


async def test_what_a_schema_cannot_say_is_checked_before_the_start():
    @attrs.frozen
    class Positive:
        number: int = attrs.field()

        @number.validator
        def _check(self, attribute, value):
            if value < 1:
                raise ValueError("number must be positive")

    def probe(value, when) -> None:
        raise AssertionError("must not run")

    probe.__annotations__.update(value=Positive, when=datetime.date)
    made = tool(probe)
    for arguments, part in (
        ({"value": {"number": 0}, "when": "2026-01-01"}, "value: number must be positive"),
        ({"value": {"number": 1}, "when": "tomorrow"}, "when: invalid RFC3339 encoded date"),
        ({"value": {"number": 1, "extra": 2}, "when": "x"}, 'value: unknown key "extra"; known: number'),
    ):
        assert (await made.invoke(arguments)).error.message == part


async def test_defaults_are_optional_told_and_pythons_own():
    marker = [Item("x")]

    @tool
    def probe(
        city: str = "Oslo",
        day: datetime.date = datetime.date(2026, 1, 2),
        colour: Colour = Colour.RED,
        items: list[Item] = marker,  # whether the very object arrives is what is tested
        untold: Any = object,
        note: str | None = None,
    ) -> bool:
        return items is marker

    properties = probe.tool.definition.parameters["properties"]
    assert "required" not in probe.tool.definition.parameters
    assert properties["city"]["default"] == "Oslo"
    assert properties["day"]["default"] == "2026-01-02"
    assert properties["colour"]["default"] == "red"
    assert encode(properties["items"]["default"]) == b'[{"count":1,"sku":"x"}]'
    assert "default" not in properties["untold"]
    assert properties["note"]["default"] is None
    assert (await probe.invoke({})).content == (JsonBlock(value=True),)


def test_nested_types_are_described_and_closed():
    @tool
    def probe(order: Order) -> None:
        pass

    parameters = probe.tool.definition.parameters
    assert parameters["properties"]["order"] == {"$ref": "#/$defs/Order"}
    item = parameters["$defs"]["Item"]
    assert item["additionalProperties"] is False
    assert item["description"] == "One line of an order."
    assert "title" not in item


def test_a_parameter_may_be_called_title_or_arguments():
    class Arguments(TypedDict):
        title: str

    def probe(title, properties, arguments) -> None:
        pass

    probe.__annotations__.update(title=str, properties=int, arguments=Arguments)
    properties = tool(probe).tool.definition.parameters["properties"]
    assert set(properties) == {"title", "properties", "arguments"}


# ------------------------------------------------------------------------------------------------------- context


async def test_the_context_is_found_by_its_type_under_any_name():
    @tool
    def probe(first: ToolContext, text: str) -> str:
        return f"{first.session} {first.call} {first.deps} {text}"

    assert "first" not in probe.tool.definition.parameters["properties"]
    outcome = await probe.invoke({"text": "a"}, deps=5)
    assert outcome.content == (TextBlock(text="test t1s1c1 5 a"),)


async def test_invoke_gives_what_a_session_would_give():
    reports = []

    @tool
    async def probe(context: ToolContext[int]) -> str:
        context.progress("half")
        return f"{context.metadata['a']} {context.secret('lab').reveal()} {context.turn} {context.step}"

    outcome = await probe.invoke(
        {},
        deps=1,
        call="t2s3c4",
        metadata={"a": 1},
        secrets={"lab": Secret("s")},
        progress=lambda text, data: reports.append(text),
    )
    assert outcome.content == (TextBlock(text="1 s t2 t2s3"),)
    assert reports == ["half"]


async def test_invoke_goes_through_timeout_and_limit():
    @tool(timeout_s=0.02)
    async def slow() -> None:
        await anyio.sleep(5)

    @tool(max_result_bytes=10)
    def long() -> str:
        return "x" * 50

    assert (await slow.invoke({})).status == "timeout"
    assert (await long.invoke({})).truncated


async def test_invoke_takes_json_only():
    with pytest.raises(ValueRefused):
        await refund.invoke({"order_id": object()})


async def test_plain_functions_run_in_a_thread():
    @tool
    def probe() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert (await probe.invoke({})).content == (JsonBlock(value=False),)


# ------------------------------------------------------------------------------------------- unusual callables


class Desk:
    def __init__(self, name):
        self.name = name

    async def greet(self, guest: str) -> str:
        """Greet a guest."""
        return f"{self.name} greets {guest}"

    def __call__(self, guest: str) -> str:
        """Say it."""
        return f"{self.name}: {guest}"


def shout(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs).upper()

    return wrapper


@shout
def whisper(word: str) -> str:
    """Whisper a word."""
    return word


@pytest.mark.parametrize(
    ("function", "options", "arguments", "text"),
    [
        (Desk("Ada").greet, {}, {"guest": "Bob"}, "Ada greets Bob"),
        (Desk("Ada"), {"name": "say"}, {"guest": "Bob"}, "Ada: Bob"),
        (functools.partial(Desk.greet, Desk("Eve")), {"name": "greet"}, {"guest": "Bob"}, "Eve greets Bob"),
        (whisper, {}, {"word": "hush"}, "HUSH"),
    ],
    ids=["bound method", "callable object", "partial", "wrapped"],
)
async def test_other_callables_can_be_tools(function, options, arguments, text):
    made = tool(**options)(function)
    assert (await made.invoke(arguments)).content == (TextBlock(text=text),)
    assert made.tool.definition.description


# ------------------------------------------------------------------------------------------------- what is refused


def untyped(order_id: str, when) -> None:
    pass


def starred(*items: str) -> None:
    pass


def double_starred(**options: str) -> None:
    pass


def positional(a: int, /) -> None:
    pass


def unresolvable(a: "Nowhere") -> None:  # noqa: F821
    pass


def undescribable(ok: int, a: complex) -> None:
    pass


def ambiguous(a: str | datetime.date) -> None:
    pass


def two_contexts(a: ToolContext, b: ToolContext) -> None:
    pass


def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


HERE = r"\(test_functions\.py:\d+\)"
REFUSED = (
    (
        untyped,
        ToolSchemaInvalid,
        rf'tool "untyped": parameter "when" has no type hint {HERE}; every parameter needs one, except ToolContext',
    ),
    (starred, ToolSchemaInvalid, rf'tool "starred": "\*items" takes arguments without a name; .* {HERE}'),
    (double_starred, ToolSchemaInvalid, rf'tool "double_starred": "\*\*options" takes .* {HERE}'),
    (positional, ToolSchemaInvalid, rf'tool "positional": parameter "a" is positional-only; .* {HERE}'),
    (
        unresolvable,
        ToolSchemaInvalid,
        rf'tool "unresolvable": the type "Nowhere" of parameter "a" cannot be resolved: .* {HERE}',
    ),
    (
        undescribable,
        ToolSchemaInvalid,
        rf'tool "undescribable": parameter "a" cannot be described to a model {HERE}: .*complex.* not supported',
    ),
    (ambiguous, ToolSchemaInvalid, rf'tool "ambiguous": parameter "a" cannot be described to a model {HERE}: .*'),
    (two_contexts, ToolSchemaInvalid, rf'tool "two_contexts": "a" and "b" are both a ToolContext; .* {HERE}'),
    (generator, UsageError, rf'tool "generator": a generator has no single result {HERE}; .*'),
    (async_generator, UsageError, rf'tool "async_generator": a generator .* {HERE}; .*'),
    (Desk.greet, ToolSchemaInvalid, rf'tool "greet": parameter "self" has no type hint {HERE}; .*'),
    (lambda: 1, IdInvalid, "tool name '<lambda>' is not of the form .*"),
    (Desk, UsageError, r"@tool stands above a function that is no tool yet; found <class .*"),
    (refund, UsageError, r"@tool stands above a function that is no tool yet; found <tool refund .*"),
    (5, UsageError, r"@tool stands above a function that is no tool yet; found 5"),
)


@pytest.mark.parametrize(("function", "error", "text"), REFUSED, ids=[text[:40] for *_, text in REFUSED])
def test_what_no_model_could_be_told_is_refused_at_decoration(function, error, text):
    with pytest.raises(error) as refused:
        tool(function)
    assert re.fullmatch(text, str(refused.value))


OPTIONS = (
    ({"name": ""}, IdInvalid, "tool name ''"),
    ({"name": "a b"}, IdInvalid, "tool name 'a b'"),
    ({"name": "../x"}, IdInvalid, "is not of the form"),
    ({"name": "x" * 65}, IdInvalid, "1 to 64 characters"),
    ({"effect": "readonly"}, UsageError, "effect is 'readonly'; it must be one of read_only, idempotent"),
    ({"timeout_s": 0}, UsageError, "timeout_s is 0; it must be a number of seconds over 0"),
    ({"timeout_s": float("nan")}, UsageError, "timeout_s is nan"),
    ({"timeout_s": True}, UsageError, "timeout_s is True"),
    ({"max_result_bytes": 0}, UsageError, "max_result_bytes is 0"),
    ({"max_result_bytes": 1.5}, UsageError, "max_result_bytes is 1.5"),
    ({"approval": "always"}, UsageError, "approval is 'always'; it must be never, ask, or a function"),
    ({"parallel": 1}, UsageError, "parallel is 1; it must be true or false"),
    ({"effect": "reconcilable"}, UsageError, "it then needs reconcile="),
    ({"reconcile": 5}, UsageError, "reconcile is 5"),
)


@pytest.mark.parametrize(("options", "error", "part"), OPTIONS, ids=[part for *_, part in OPTIONS])
def test_an_option_out_of_range_is_refused_at_decoration(options, error, part):
    with pytest.raises(error) as refused:

        @tool(**options)
        def probe() -> None:
            pass

    assert part in str(refused.value)


def test_a_misspelt_option_is_refused():
    with pytest.raises(TypeError, match="efect"):
        tool(efect="read_only")(lambda: 1)


# ------------------------------------------------------------------------------------------------ registry values


def plain(city: str) -> str:
    return city


def test_registry_values_come_from_decorated_functions_and_tools():
    made = Tool(definition=ToolDefinition(name="mine"), handler=lambda arguments, context: None)
    assert as_tool(refund) is refund.tool
    assert as_tool(made) is made
    assert isinstance(refund, FunctionTool)


@pytest.mark.parametrize(
    ("thing", "text", "hint"),
    [
        (
            plain,
            rf'"plain" is a plain function {HERE}; a tool is decorated',
            "@tool above def plain",
        ),
        ("weather", "a tool was expected, found str; accepted are decorated functions and Tool", None),
        (None, "a tool was expected, found NoneType; .*", None),
    ],
)
def test_anything_else_is_no_tool(thing, text, hint):
    with pytest.raises(UsageError) as refused:
        as_tool(thing)
    assert re.fullmatch(text, str(refused.value))
    assert refused.value.hint == hint


@pytest.mark.parametrize(
    ("definition", "error", "part"),
    [
        (ToolDefinition(name="a/b"), IdInvalid, "tool name 'a/b'"),
        (ToolDefinition(name="a", parameters={"type": "string"}), ToolSchemaInvalid, 'tool "a": its schema has type'),
        (ToolDefinition(name="CON\x00"), IdInvalid, "is not of the form"),
    ],
)
def test_a_tool_made_by_hand_is_checked_too(definition, error, part):
    with pytest.raises(error) as refused:
        check_tool(Tool(definition=definition, handler=plain))
    assert part in str(refused.value)


def test_a_handler_must_be_callable():
    with pytest.raises(UsageError, match="handler is 'x'"):
        check_tool(Tool(definition=ToolDefinition(name="a"), handler="x"))
