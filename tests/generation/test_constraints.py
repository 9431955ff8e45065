"""Answers that match an expression or a schema: beside masks by hand, in any search and company; what is refused."""

import json
import re
import sys

import numpy as np
import pytest

import fastattn
from fastattn.errors import FastattnError, InputError
from fastattn.text.constraints import Constraints
from tests.generation.language_models import END, VOCABULARY, checkpoint, make
from tests.generation.test_generator import ids_of, log_probs_of, ranked
from tests.weights.gguf.test_gguf_metadata import spm_metadata, text_of

pytest.importorskip("llguidance")
WORDS = ["yes", "no", "nothing", "the end", "the andes", "é", *(f"maybe {n}" for n in range(10))]
REGEX = "yes|no(thing)?|the (end|andes)|é|maybe [0-9]"
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "of": {"enum": ["x", "é"]}},
    "required": ["n", "of"],
    "additionalProperties": False,
}
SEARCHES = {
    "greedy": {},
    "samples": {"sampling_temperature": 1.3, "seed": 5},
    "best few": {"sampling_topk": 3, "seed": 5},
    "beam": {"beam_size": 3},
    "penalties": {"repetition_penalty": 1.2, "no_repeat_ngram_size": 4},
}


@pytest.fixture(scope="module")
def generator():
    return make()


def follows_schema(text):
    value = json.loads(text)
    return (
        list(value) == ["n", "of"] and type(value["n"]) is int and 0 <= value["n"] <= 99 and value["of"] in ("x", "é")
    )


def allowed_by_hand(generator, ids):
    """(ids that go on to one of WORDS, in bytes, the end where the ids are one; whether the next byte is certain).

    Of certain bytes only the tokens as the tokenizer splits them may come.
    """
    alphabet = {letter: byte for byte, letter in bytes_of_letters().items()}
    token_of = [bytes(alphabet[c] for c in generator._tokenizer.token(i)) if i > 1 else b"" for i in range(VOCABULARY)]
    text, words = b"".join(token_of[i] for i in ids), [word.encode() for word in WORDS]
    going_on = [i for i in range(2, VOCABULARY) if any(word.startswith(text + token_of[i]) for word in words)]
    behind = {word[len(text) :][:1] for word in words if word.startswith(text)}
    return [*([END] if text in words else []), *going_on], len(behind) == 1 and b"" not in behind


def bytes_of_letters():
    """GPT-2's table from bytes to letters."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in own]
    return dict(zip([*own, *others], [*map(chr, own), *(chr(256 + n) for n in range(len(others)))]))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_token_is_the_best_of_those_that_may_come(seed):
    given = checkpoint(seed=seed)
    generator = fastattn.Generator.from_checkpoint(given, "float32")
    matcher = Constraints(given.text.tokenizer, VOCABULARY).constraint(REGEX, None, [END])()
    for prompt in ("the end", "é", "x"):
        ids = ids_of(generator, prompt)
        found = generator.generate(prompt, regex=REGEX, details=True, return_log_probs=True, top_log_probs=4)
        assert found.text in WORDS and found.finish_reason == "stop"
        total = 0.0
        for n, token in enumerate([*found.tokens, END]):
            log_probs_V = log_probs_of(given, [*ids, *found.tokens[:n]])[-1]
            may_come, certain = allowed_by_hand(generator, found.tokens[:n])
            if certain:
                assert token in may_come
                may_come = np.flatnonzero(matcher.allowed(found.tokens[:n])).tolist()
            own = log_probs_V[may_come] - np.logaddexp.reduce(log_probs_V[may_come])
            assert may_come[own.argmax()] == token
            assert n == len(found.tokens) or abs(found.log_probs[n] - own.max()) < 1e-4
            for top in found.top_log_probs[n : n + 1]:
                assert {*top} <= {*may_come} and len(top) == min(4, len(may_come))
                np.testing.assert_allclose([*top.values()], -np.sort(-own)[:4], atol=1e-4)
            total += own.max()
        assert abs(found.score - total / (len(found.tokens) + 1)) < 1e-4


def test_the_mask_is_that_by_hand_for_every_beginning(generator):
    """And in any order of beginnings, as beams ask; nothing comes behind what is no beginning."""
    matcher = Constraints(checkpoint().text.tokenizer, VOCABULARY).constraint(REGEX, None, [END])()
    rng, beginnings = np.random.default_rng(0), [[]]
    for _ in range(60):
        ids = beginnings[rng.integers(len(beginnings))]
        may_come, certain = allowed_by_hand(generator, ids)
        found = np.flatnonzero(matcher.allowed(ids)).tolist()
        assert found and set(found) <= set(may_come)
        assert certain or sorted(found) == sorted(may_come)
        beginnings.append([*ids, int(rng.choice(may_come))] if may_come != [END] else [])
    assert not matcher.allowed([*ids_of(generator, "yes", False), 90]).any()
    assert not matcher.allowed([90, 91]).any() and matcher.allowed([]).any()


@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_matches(generator, search):
    for prompt in ("the end", "an apple"):
        for one in ranked(generator.generate(prompt, regex=REGEX, details=True, **SEARCHES[search])):
            assert one.text in WORDS and np.isfinite(one.score)
        found = generator.generate(prompt, json_schema=SCHEMA, details=True, max_new_tokens=200, **SEARCHES[search])
        assert found.finish_reason == "stop" and follows_schema(found.text)
        assert generator.generate(prompt, json_schema=json.dumps(SCHEMA), max_new_tokens=200, **SEARCHES[search]) == (
            found.text
        )


def test_a_beam_has_no_more_answers_than_there_are(generator):
    found = generator.generate("the", regex="b|c|\\t", details=True, beam_size=8, num_hypotheses=8, length_penalty=0)
    assert sorted(one.text for one in ranked(found)) == ["\t", "b", "c"]
    assert all(one.finish_reason == "stop" and one.score > -100 for one in ranked(found))
    stopped = generator.generate("the", regex="[bc]{6}", stop=["!", "bc"], details=True, beam_size=4, num_hypotheses=4)
    assert all(re.fullmatch("b*|c+b*|[bc]{6}", one.text) and one.score > -100 for one in ranked(stopped))


def test_many_callers_have_their_own_constraint_in_a_batch(generator):
    """With the bits of each alone, and so has an answer without one."""
    asked = [
        ("the end", {"regex": REGEX}),
        ("the end", {}),
        ("an apple", {"json_schema": SCHEMA}),
        ("an apple", {"regex": "[a-z]{20}", "max_new_tokens": 15}),
        ("x", {"regex": "(a|bc)*", "sampling_temperature": 1.0, "seed": 1}),
        ("x", {"regex": REGEX, "beam_size": 2}),
    ]
    asked = [(prompt, {"max_new_tokens": 40} | options) for prompt, options in asked]
    how = {"details": True, "return_log_probs": True}
    alone = [generator.generate(prompt, **how, **options) for prompt, options in asked]
    together = [generator.submit(prompt, **how, caller=n, **options) for n, (prompt, options) in enumerate(asked)]
    for one, future in zip(alone, together):
        found = future.result(60)
        assert (found.tokens, found.log_probs.tobytes()) == (one.tokens, one.log_probs.tobytes())
    streamed = "".join(generator.stream(asked[0][0], **asked[0][1]))
    assert streamed == alone[0].text


def test_an_answer_ends_where_its_tokens_are_spent_or_nothing_is_left(generator):
    cut = generator.generate("the", regex="(abcdefgh){9}", max_new_tokens=11, details=True)
    assert cut.finish_reason == "length" and cut.text and ("abcdefgh" * 9).startswith(cut.text)
    assert generator.generate("the", regex="a?b", min_new_tokens=9) in ("ab", "b")
    found = generator.generate("the", regex="abc", suppress_sequences=["b"], details=True)
    assert (found.text, found.finish_reason) == ("a", "stop")
    assert generator.generate("the", regex="") == ""
    other = ids_of(generator, "c", False)
    assert generator.generate("the", regex="[ab]{2}c?", end_token=other, details=True).text in ("aa", "ab", "ba", "bb")


def test_an_answer_ends_as_its_own_call_says():
    """Whatever ended those of earlier calls with the same constraint."""
    used = make()
    for given in ({"regex": "[ab]{2}c?"}, {"json_schema": SCHEMA}):
        for end in (END, 40, [END, 40], END):
            options = {"end_token": end, "details": True, "max_new_tokens": 60, **given}
            found = used.generate("the", **options)
            assert found.finish_reason == "stop" and found == make().generate("the", **options)


WRONG = [
    ({"regex": "(yes|no"}, "regex: unclosed group"),
    ({"regex": "(?=a)b"}, "regex: look-around, including look-ahead and look-behind, is not supported"),
    ({"regex": r"[^\x00-\x{10FFFF}]"}, "regex: no text matches it"),
    ({"regex": 3}, "regex should be a str, got int"),
    ({"regex": "a", "json_schema": {}}, "give regex or json_schema, not both"),
    ({"regex": "a\ud800"}, "regex: "),
    ({"regex": "a", "speculate": "prompt"}, "speculate goes with no regex"),
    ({"json_schema": "{"}, "json_schema: EOF while parsing an object"),
    ({"json_schema": [1]}, "json_schema should be a dict or its JSON text, got list"),
    ({"json_schema": {"type": {1}}}, "json_schema is no JSON: "),
    ({"json_schema": {"type": "thing"}}, "json_schema: Invalid type: thing"),
    ({"json_schema": {"$ref": "https://example.invalid/x"}}, "json_schema: Resource "),
    ({"json_schema": {"enum": ["x" * 99] * 999}}, "json_schema should have at most 65536 characters, has "),
    ({"json_schema": {"$ref": "#"}}, "json_schema: no text matches it"),
    ({"json_schema": {"not": {}}}, 'json_schema: Unimplemented keys: ["not"]'),
    ({"json_schema": {"uniqueItems": True, "contains": {}}}, "json_schema: Unimplemented keys: "),
    ({"json_schema": {"format": "zip"}}, "json_schema: Unknown format: zip"),
    ({"json_schema": False}, "json_schema should be a dict or its JSON text, got bool"),
]


@pytest.mark.parametrize("call", ["generate", "submit", "stream"])
@pytest.mark.parametrize(("given", "message"), WRONG)
def test_what_cannot_be_compiled_is_a_line(generator, call, given, message):
    with pytest.raises(InputError) as caught:
        getattr(generator, call)("x", **given)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


KEYWORDS = [
    ({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 3}]}, "oneOf is followed as anyOf", r"-?[\d.]+.*"),
    ({"type": "array", "items": {"enum": [1]}, "uniqueItems": True}, "uniqueItems is not followed", r"\[[\s1,]*\]?"),
    ({"oneOf": [{"const": 12}, {"const": "x"}]}, None, '12|"x"'),
    (True, None, ".+"),
    (" true ", None, ".+"),
    ({"x-guidance": {"lenient": True}, "enum": [1], "not": {}}, 'Unimplemented keys: ["not"]', "1"),
]


@pytest.mark.parametrize(("schema", "remark", "pattern"), KEYWORDS)
def test_keywords_of_which_a_wider_schema_is_followed(generator, recwarn, schema, remark, pattern):
    assert re.fullmatch(pattern, generator.generate("the", json_schema=schema, max_new_tokens=9), re.DOTALL)
    assert [str(warning.message) for warning in recwarn] == ([f"json_schema: {remark}"] if remark else [])


DOUBLED = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)} | {"d30": {"const": 1}}
ENDLESS = {"type": "array"}
ENDLESS["items"] = ENDLESS
# A schema, and what an answer begins with; None: it is refused.
HOSTILE = [
    ({"type": "array", "items": {"type": "string", "minLength": 10**9}, "minItems": 10**9}, "["),
    ({"$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}, "["),
    ({"$defs": DOUBLED, "$ref": "#/$defs/d0"}, "1"),
    ({"type": "string", "pattern": "(((a{1000}){1000}){1000})"}, '"'),
    ({"type": "string", "maxLength": 10**18}, None),
    ({"allOf": [{"anyOf": [{"properties": {f"a{i}{j}": {}}} for j in range(6)]} for i in range(10)]}, None),
    ({"type": "object", "properties": {f"p{n}": {"type": "integer"} for n in range(800)}}, None),
    ('{"type":"array","items":' * 1000 + '{"type":"integer"}' + "}" * 1000, None),
    (ENDLESS, None),
]


def test_hostile_schemas_end(generator):
    """In an answer that begins as its schema says, or in a line."""
    for schema, begun in HOSTILE:
        if begun:
            assert generator.generate("x", json_schema=schema, max_new_tokens=8)[0] == begun
        else:
            with pytest.raises(InputError, match="^json_schema( is no JSON)?: .{,380}$"):
                generator.generate("x", json_schema=schema, max_new_tokens=8)
    with pytest.raises(InputError, match=r"regex: .*nest"):
        generator.generate("x", regex="(" * 50_000 + ")" * 50_000)


def test_what_grows_too_large_in_an_answer_is_its_own_callers(generator):
    """The library finds it behind some tokens."""
    expected = generator.generate("x", regex="b{30}", max_new_tokens=40)
    fine = generator.submit("x", regex="b{30}", max_new_tokens=40, caller=1)
    with pytest.raises(InputError, match="regex: too many expressions"):
        generator.submit("x", regex="(a?){2000}a{2000}", max_new_tokens=40, caller=2).result(60)
    assert fine.result(60) == expected == "b" * 30


def test_tokens_of_sentencepiece_and_ids_without_a_token():
    """A space begins a word's token there; characters may be bytes."""
    text = text_of(spm_metadata())
    tokens = spm_metadata()["tokens"]
    matcher = Constraints(text.tokenizer, len(tokens) + 9).constraint("the quiet|é!?", None, text.end_ids)()
    pieces = {token.replace("▁", " "): n for n, token in enumerate(tokens)}
    may_come = np.flatnonzero(matcher.allowed([])).tolist()
    starts = [n for piece, n in pieces.items() if piece and ("the quiet".startswith(piece) or piece == "é")]
    assert sorted(may_come) == sorted({*starts, pieces["<0xC3>"], pieces["<0x74>"]})
    assert np.flatnonzero(matcher.allowed([pieces["<0xC3>"]])).tolist() == [pieces["<0xA9>"]]
    behind = np.flatnonzero(matcher.allowed([pieces["<0xC3>"], pieces["<0xA9>"]]))
    assert {*text.end_ids} < {*behind.tolist()} and len(matcher.allowed([])) == len(tokens) + 9


def test_without_an_end_or_the_library(generator, monkeypatch):
    with pytest.raises(InputError, match="need an end token, the checkpoint names none: give end_token"):
        make(end_ids=()).generate("x", regex="a")
    assert make(end_ids=()).generate("x", regex="ab?", end_token=END) in ("a", "ab")
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(FastattnError, match=r"pip install 'fastattn\[constrain\]'"):
        make().generate("x", regex="a")
