"""The schema subset, validation, and the sentences that models get."""

import subprocess
import sys
import timeit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spine.errors import ToolSchemaInvalid, UsageError
from spine.late import LATE, load
from spine.problems import conversion_problem
from spine.schema import check_schema, compile_schema
from spine.values import freeze_object

WEATHER = freeze_object(
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]"},
            "day": {"type": "integer", "minimum": 1, "exclusiveMaximum": 8, "multipleOf": 1},
            "unit": {"enum": ["C", "F"]},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2, "uniqueItems": True},
            "place": {"$ref": "#/$defs/place"},
            "shape": {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
                        "required": ["kind", "radius"],
                    },
                    {"type": "object", "properties": {"kind": {"const": "point"}}, "required": ["kind"]},
                ]
            },
            "one": {"oneOf": [{"type": "integer"}, {"multipleOf": 5}]},
            "extra": {"type": "object", "minProperties": 1, "maxProperties": 1, "propertyNames": {"maxLength": 2}},
            "never": False,
            "other": {"not": {"type": "string"}},
        },
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {
            "place": {
                "type": "object",
                "properties": {"zip": {"type": "string"}, "inner": {"$ref": "#/$defs/place"}},
                "required": ["zip"],
                "additionalProperties": False,
            }
        },
    }
)

FITTING = (
    {"city": "oslo"},
    {"city": "oslo", "day": 7, "unit": "C", "note": None, "tags": ["a", "b"]},
    {"city": "oslo", "place": {"zip": "1", "inner": {"zip": "2", "inner": {"zip": "3"}}}},
    {"city": "oslo", "shape": {"kind": "point"}, "one": 3, "extra": {"a": 1}, "other": 1},
)

SENTENCES = (
    ({}, 'missing "city"'),
    ({"city": 1017}, "city: expected string, found integer 1017"),
    ({"city": None}, "city: expected string, found null"),
    ({"city": True}, "city: expected string, found boolean true"),
    ({"city": 2.5}, "city: expected string, found number 2.5"),
    ({"city": ["a"]}, 'city: expected string, found array ["a"]'),
    ({"city": {"a": 1}}, 'city: expected string, found object {"a":1}'),
    ({"city": "x"}, 'city: expected at least 2 characters, found string "x"'),
    ({"city": "abcdefg"}, 'city: expected at most 5 characters, found string "abcdefg"'),
    ({"city": "OSLO"}, 'city: expected text matching ^[a-z], found string "OSLO"'),
    ({"city": "oslo", "day": 0}, "day: expected at least 1, found integer 0"),
    ({"city": "oslo", "day": 8}, "day: expected less than 8, found integer 8"),
    ({"city": "oslo", "unit": "K"}, 'unit: expected one of "C", "F", found string "K"'),
    ({"city": "oslo", "note": 3}, "note: expected string or null, found integer 3"),
    ({"city": "oslo", "tags": []}, "tags: expected at least 1 items, found array []"),
    ({"city": "oslo", "tags": ["a", 2]}, "tags[1]: expected string, found integer 2"),
    ({"city": "oslo", "tags": ["a", "a"]}, "tags: expected items that all differ"),
    ({"city": "oslo", "place": {}}, 'place: missing "zip"'),
    ({"city": "oslo", "place": {"zip": "1", "zop": 2}}, 'place: unknown key "zop"; known: zip, inner'),
    ({"city": "oslo", "place": {"zip": "1", "inner": {"zip": 2}}}, "place.inner.zip: expected string, found integer 2"),
    ({"city": "oslo", "shape": {"kind": "circle", "radius": "1"}}, 'shape.radius: expected number, found string "1"'),
    ({"city": "oslo", "shape": 3}, "shape: expected object, found integer 3"),
    ({"city": "oslo", "one": 5}, "one: integer 5 fits more than one alternative; exactly one is wanted"),
    ({"city": "oslo", "extra": {}}, "extra: expected at least 1 keys, found object {}"),
    (
        {"city": "oslo", "extra": {"abc": 1}},
        'extra: unusable key, expected at most 2 characters, found string "abc"',
    ),
    ({"city": "oslo", "never": 1}, "never: integer 1 is not accepted"),
    ({"city": "oslo", "other": "x"}, 'other: string "x" is excluded'),
)


@pytest.fixture(scope="module")
def weather():
    check_schema(WEATHER, tool="weather")
    return compile_schema(WEATHER)


@pytest.mark.parametrize("arguments", FITTING)
def test_fitting_arguments_have_no_problem(weather, arguments):
    assert weather(freeze_object(arguments)) is None


@pytest.mark.parametrize(("arguments", "sentence"), SENTENCES, ids=[sentence for _, sentence in SENTENCES])
def test_a_problem_is_one_sentence_with_the_place(weather, arguments, sentence):
    assert weather(freeze_object(arguments)) == sentence


def test_an_unknown_argument_names_the_known_ones(weather):
    known = ", ".join(WEATHER["properties"])
    assert weather(freeze_object({"city": "oslo", "town": 1})) == f'unknown argument "town"; known: {known}'


def test_at_most_three_problems_are_told(weather):
    sentence = weather(freeze_object({"city": 1, "day": "x", "unit": "K", "note": 1, "tags": 2}))
    assert sentence.count("; ") == 3
    assert sentence.endswith("; and 2 more")


def test_values_are_cut_short(weather):
    sentence = weather(freeze_object({"city": {"k" * 500: "v" * 500}, "unit": ["x" * 50] * 50}))
    assert len(sentence) < 400
    assert sentence.count("…") == 2


def test_a_cut_array_never_looks_whole(weather):
    sentence = weather(freeze_object({"city": [1] * 1000}))
    assert sentence.endswith("…")


def test_a_wide_mistake_takes_no_time_in_proportion(weather):
    arguments = freeze_object({"city": "oslo", "tags": [1] * 100_000})
    assert timeit.timeit(lambda: weather(arguments), number=1) < 0.2
    assert weather(arguments).startswith("tags")


def test_hostile_patterns_end_in_linear_time():
    schema = freeze_object({"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}})
    check_schema(schema, tool="hostile")
    validator = compile_schema(schema)
    arguments = freeze_object({"a": "a" * 50_000 + "b"})
    assert timeit.timeit(lambda: validator(arguments), number=1) < 0.5


def test_a_small_call_is_validated_within_two_microseconds(weather):
    arguments = freeze_object({"city": "oslo", "day": 3})
    best = min(timeit.repeat(lambda: weather(arguments), number=2000, repeat=5)) / 2000
    assert best < 2e-6


def test_equal_schemas_are_compiled_once():
    first, second = ({"type": "object", "properties": {"a": {"const": 1}}} for _ in range(2))
    assert compile_schema(freeze_object(first))._is_valid == compile_schema(freeze_object(second))._is_valid


def test_schemas_that_python_calls_equal_are_kept_apart():
    """`1 == True` in Python; a schema with one must not validate with the other's."""
    number = compile_schema(freeze_object({"type": "object", "properties": {"a": {"const": 1}}}))
    truth = compile_schema(freeze_object({"type": "object", "properties": {"a": {"const": True}}}))
    assert number(freeze_object({"a": 1})) is None
    assert truth(freeze_object({"a": 1})) == "a: expected true, found integer 1"


def test_an_empty_schema_takes_any_object():
    check_schema(freeze_object({}), tool="free")
    assert compile_schema(freeze_object({}))(freeze_object({"a": [1]})) is None


REFUSED = (
    ({"type": "string"}, 'has type "string" at the root'),
    ({"properties": {}}, "has type null at the root"),
    ({"properties": {"a": {"nullable": True}}}, 'parameters.properties.a.nullable: unknown keyword "nullable"'),
    ({"properties": {"a": {"maxLenght": 3}}}, 'nearest is "maxLength"'),
    ({"properties": {"a": {"$ref": "http://127.0.0.1/x"}}}, "is not of the form #/$defs/<name>"),
    ({"properties": {"a": {"$ref": "#/properties/b"}, "b": {}}}, "is not of the form #/$defs/<name>"),
    ({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"c": {}}}, '"#/$defs/b" is not defined; defined are: c'),
    ({"properties": {"a": {"$defs": {}}}}, "definitions stand at the root"),
    ({"properties": {"a": 3}}, "a schema is an object, true or false; found int"),
    ({"properties": []}, "parameters.properties: expected an object of schemas"),
    ({"properties": {"a": {"anyOf": []}}}, "expected a list with at least one schema"),
    ({"properties": {"a": {"anyOf": [{"type": "text"}]}}}, "parameters.properties.a.anyOf[0].type: expected one or"),
    ({"properties": {"a": {"type": ["string", "string"]}}}, "expected one or several"),
    ({"properties": {"a": {"enum": []}}}, "a list with at least one value"),
    ({"required": "a"}, "a list of names"),
    ({"required": ["a", "a"]}, "a list of names that differ"),
    ({"properties": {"a": {"minLength": -1}}}, "a whole number from 0"),
    ({"properties": {"a": {"minimum": "1"}}}, "a number, found"),
    ({"properties": {"a": {"multipleOf": 0}}}, "a number over 0"),
    ({"properties": {"a": {"pattern": "(?=a)b"}}}, "does not compile"),
    ({"properties": {"a": {"pattern": "("}}}, "does not compile"),
    ({"patternProperties": {"(": {}}}, "does not compile"),
    ({"properties": {"a": {"if": {}}}}, "unknown keyword"),
    ({"$id": "x"}, "unknown keyword"),
    ({"$dynamicRef": "#x"}, "unknown keyword"),
    ({"description": "x" * 300_000}, "bytes; at most"),
)


@pytest.mark.parametrize(("schema", "part"), REFUSED, ids=[part for _, part in REFUSED])
def test_what_is_outside_the_subset_is_refused(schema, part):
    schema = schema if "type" in schema or part.startswith("has type") else {"type": "object", **schema}
    with pytest.raises(ToolSchemaInvalid) as refused:
        check_schema(freeze_object(schema), tool="weather")
    assert 'tool "weather": ' in str(refused.value)
    assert part in str(refused.value)


def test_notes_are_accepted():
    notes = {"title": "T", "description": "d", "default": 1, "examples": [1], "deprecated": True, "x-order": 1}
    schema = {"$schema": "http://127.0.0.1:1/none", "type": "object", "properties": {"a": notes}}
    check_schema(freeze_object(schema), tool="noted")
    assert compile_schema(freeze_object(schema))(freeze_object({"a": "anything"})) is None


def test_circular_references_end():
    loops = (
        {"x": {"$ref": "#/$defs/x"}},
        {"x": {"allOf": [{"$ref": "#/$defs/x"}]}},
        {"x": {"anyOf": [{"$ref": "#/$defs/y"}]}, "y": {"not": {"$ref": "#/$defs/x"}}},
    )
    for definitions in loops:
        schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": definitions}
        check_schema(freeze_object(schema), tool="loop")
        compile_schema(freeze_object(schema))(freeze_object({"a": {"a": 1}}))


_values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_counts = st.integers(0, 10**6)
_plain = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", ["number", "null"], "array", "object", "boolean"]),
        "enum": st.lists(_values, min_size=1, max_size=3),
        "const": _values,
        "minimum": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        "multipleOf": st.integers(1, 10**30) | st.floats(min_value=1e-300, max_value=1e300),
        "minLength": _counts,
        "maxItems": _counts,
        "uniqueItems": st.booleans(),
        "required": st.lists(st.text(max_size=3), max_size=3, unique=True),
        "$ref": st.just("#/$defs/d"),
        "default": _values,
    },
)
_schemas = st.recursive(
    _plain | st.booleans(),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.text(max_size=3), inner, max_size=3),
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "additionalProperties": inner,
            "not": inner,
        },
    ),
    max_leaves=6,
)
_json = st.recursive(_values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))


@settings(max_examples=150, deadline=None)
@given(properties=st.dictionaries(st.text(max_size=3), _schemas, max_size=3), definition=_schemas, data=st.data())
def test_whatever_passes_the_check_compiles_and_answers(properties, definition, data):
    """Compiling is left to the first call, so nothing that was accepted may fail then."""
    schema = freeze_object({"type": "object", "properties": properties, "$defs": {"d": definition}})
    check_schema(schema, tool="any")
    arguments = freeze_object(data.draw(st.dictionaries(st.text(max_size=3), _json, max_size=3)))
    problem = compile_schema(schema)(arguments)
    assert problem is None or (problem and len(problem) < 2000)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Expected `int`, got `str` - at `$.n`", "n: expected integer, found string"),
        ("Invalid RFC3339 encoded date - at `$.when[0]`", "when[0]: invalid RFC3339 encoded date"),
        ("Object missing required field `city`", "object missing required field city"),
        ("", ""),
    ],
)
def test_conversion_messages_read_like_ours(text, sentence):
    assert conversion_problem(text) == sentence


def test_the_validator_library_is_loaded_late():
    code = "import sys, spine.functions, spine.schema; sys.exit(any(name in sys.modules for name in spine.late.LATE))"
    assert subprocess.run([sys.executable, "-c", "import spine.late;" + code], check=False).returncode == 0


def test_only_listed_libraries_are_loaded():
    assert load("jsonschema_rs").__name__ in LATE
    with pytest.raises(UsageError, match="jsonschema_rs"):
        load("antigravity")
