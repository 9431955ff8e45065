"""Parts of a language model's answer, whole and in pieces of one character."""

import pytest

from fastattn.errors import InputError
from fastattn.text.tool_calls import AnswerParts, call_schema, split_answer

TOOLS, F, G = ("f", "g"), ("f", "{}"), ("g", "{}")
# An answer; its reasoning, its text, its calls.
ANSWERS = [
    ("hello <b", "", "hello <b", []),
    ("", "", "", []),
    (" \n", "", " \n", []),
    ("  two blanks", "", "  two blanks", []),
    ("<thin", "", "<thin", []),
    ("<think>\nhm\n</think>\n\nYes.", "hm", "Yes.", []),
    ("<think>without an end", "without an end", "", []),
    ("<think>a</think><tool_call>{'name': 1}</tool_call>", "a", "<tool_call>{'name': 1}</tool_call>", []),
    ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', "", "", [("f", '{"a": 1}')]),
    (
        '<tool_call>{"name": "f", "arguments": "{}"}</tool_call>\n<tool_call>{"name": "g", "arguments": {}}',
        "",
        "",
        [("f", "{}"), ("g", "{}")],
    ),
    ('See.\n<tool_call>{"name": "f", "arguments": {"a": "é"}}</tool_call>', "", "See.\n", [("f", '{"a": "é"}')]),
    (
        '{"name": "f", "parameters": {"x": 2}}; {"name": "g", "parameters": {}}',
        "",
        "",
        [("f", '{"x": 2}'), ("g", "{}")],
    ),
    ('[{"name": "f", "arguments": {"a": [1]}}]', "", "", [("f", '{"a": [1]}')]),
    ('{"name": "h", "arguments": {}}', "", '{"name": "h", "arguments": {}}', []),
    ('{"name": "f", "arguments": [1]}', "", '{"name": "f", "arguments": [1]}', []),
    ('{"a": "b"} is JSON', "", '{"a": "b"} is JSON', []),
    ("[1, 2]", "", "[1, 2]", []),
    ("[]", "", "[]", []),
    ("<tool_call>\nno call", "", "<tool_call>\nno call", []),
    ("<tool_call></tool_call>", "", "<tool_call></tool_call>", []),
    ('{"name": "f", "age": 3}', "", '{"name": "f", "age": 3}', []),
    ('{"name": "f", "arguments": {"a": NaN}}', "", '{"name": "f", "arguments": {"a": NaN}}', []),
    (r'{"name": "f", "arguments": "{\"a\": NaN}"}', "", r'{"name": "f", "arguments": "{\"a\": NaN}"}', []),
    ("[" * 100_000, "", "[" * 100_000, []),
    ("a <tool_call> b", "", "a <tool_call> b", []),
]


@pytest.mark.parametrize("answer, reasoning, text, calls", ANSWERS)
def test_parts_are_the_same_whole_and_in_pieces(answer, reasoning, text, calls):
    assert tuple(split_answer(answer, TOOLS)) == (reasoning, text, calls)
    parts, pieces = AnswerParts(TOOLS), []
    for character in answer:
        pieces += parts.add(character)
    pieces += parts.end()
    assert "".join(piece for kind, piece in pieces if kind == "reasoning").strip() == reasoning
    assert ("".join(piece for kind, piece in pieces if kind == "content"), parts.calls) == (text, calls)
    assert all(piece for _, piece in pieces)


def test_without_tools_a_call_is_text():
    text = '<tool_call>{"name": "f"}</tool_call>'
    assert tuple(split_answer(text)) == ("", text, []) and tuple(split_answer("a</think>b", (), True)) == ("a", "b", [])


def test_a_schema_has_the_templates_word_for_arguments():
    tools = [{"name": "f", "parameters": {"type": "object", "required": ["a"]}}, {"name": "g"}]
    first, second = call_schema(tools, None, "")["anyOf"]
    assert first["properties"] == {"name": {"const": "f"}, "arguments": tools[0]["parameters"]}
    assert second["required"] == ["name", "arguments"]
    (only,) = call_schema(tools, "g", 'such as {"name": function, "parameters": dictionary}')["anyOf"]
    assert only["properties"] == {"name": {"const": "g"}, "parameters": {"type": "object"}}
    with pytest.raises(InputError, match="names 'h'"):
        call_schema(tools, "h", "")
