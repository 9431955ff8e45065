"""Text in, text out: lines, splitting, joining, details, streams, scores, and what is refused."""

import contextlib
import dataclasses
import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from fastattn import ExecutionStats, Step, Translator
from fastattn.errors import CheckpointError, FastattnError, InputError
from fastattn.ops import cpu as operations
from fastattn.spec.text_spec import EncoderText
from fastattn.system import files
from fastattn.text.translation import TranslationTokenizer
from tests.encoders.test_encoder import _encoder
from tests.messages import refused
from tests.models.tiny_models import LETTERS, random_checkpoint, steady_ops, vocabulary

VOCABULARY = ("<unk>", "<s>", "</s>", *LETTERS)


def _checkpoint(text_changes=None, seed=21, **changes):
    checkpoint = random_checkpoint(seed, sharpness=4.0, **changes)
    text = dataclasses.replace(checkpoint.text, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    checkpoint.text = dataclasses.replace(text, **(text_changes or {}))
    return checkpoint


def _translator(text_changes=None, threads=1, ops=steady_ops, **changes):
    return Translator.from_checkpoint(_checkpoint(text_changes, **changes), threads=threads, ops=ops)


SHORT = {"max_decoding_length": 6}


@pytest.fixture(scope="module")
def translator():
    return _translator()


def test_a_text_gives_a_text_and_a_list_a_list(translator):
    one = translator.translate("a b c", **SHORT)
    assert isinstance(one, str) and one.split() and set(one.split()) <= set(VOCABULARY)
    assert translator.translate(["a b c", "d"], **SHORT) == [one, translator.translate("d", **SHORT)]
    assert translator.translate([], **SHORT) == []


def test_lines_are_translated_one_by_one_and_empty_ones_stay(translator):
    one, two = translator.translate(["a b", "c d e"], **SHORT)
    assert translator.translate("a b\n\n  \t\r\nc d e\r", **SHORT) == f"{one}\n\n  \t\r\n{two}\r"
    assert translator.translate(["", " ", "\n"], **SHORT) == ["", " ", "\n"]


def test_details_hold_the_hypotheses_and_their_scores(translator):
    options = SHORT | {"beam_size": 3, "num_hypotheses": 3}
    one, two = translator.translate(["a b", "c d e"], details=True, **options)
    assert one.text == one.hypotheses[0] == translator.translate("a b", beam_size=3, **SHORT)
    assert one.scores == sorted(one.scores, reverse=True) and len(set(one.scores)) == 3
    (part,) = one.parts
    assert part.source == ["a", "b"] and [" ".join(tokens) for tokens in part.hypotheses] == one.hypotheses
    both = translator.translate("a b\nc d e", details=True, **options)
    assert both.hypotheses == [f"{x}\n{y}" for x, y in zip(one.hypotheses, two.hypotheses)]
    lengths = [x + y for x, y in zip(one.parts[0].lengths, two.parts[0].lengths)]
    totals = [x + y for x, y in zip(one.parts[0].log_probabilities, two.parts[0].log_probabilities)]
    np.testing.assert_allclose(both.scores, np.divide(totals, lengths), rtol=1e-6)
    assert len(both.parts) == 2
    empty = translator.translate(" ", details=True, **options)
    assert empty.hypotheses == [" "] * 3 and empty.scores == [0.0] * 3 and empty.parts == []


def test_attention_leaves_the_added_tokens_out():
    plain = _translator({"add_source_bos": True, "add_source_eos": True})
    (part,) = plain.translate("a b c", details=True, return_attention=True, **SHORT).parts
    assert part.attention[0].shape == (len(part.tokens), 3)
    assert (part.attention[0].sum(axis=1) < 1).all(), "some of it went to the special tokens"
    (whole,) = _translator().translate_tokens([["<s>", "a", "b", "c", "</s>"]], return_attention=True, **SHORT)
    np.testing.assert_array_equal(part.attention[0], whole.attention[0][:, 1:4])


def test_a_target_prefix_begins_the_translation(translator):
    plain = translator.translate(["a b", "c", "d e"], **SHORT)
    begun = translator.translate(["a b", "c", "d e"], target_prefix=[None, "m", ""], **SHORT)
    assert begun[0] == plain[0] and begun[1].startswith("m ") and begun[2] == plain[2]
    lines = translator.translate("a b\nc", target_prefix="k l", **SHORT).split("\n")
    assert lines[0].startswith("k l ") and lines[1] == plain[1]
    first, second = translator.translate_tokens([["a"], ["b"]], iter([None, ["k", "l"]]), **SHORT)
    assert first == translator.translate_tokens([["a"]], **SHORT)[0] and second.tokens[:2] == ["k", "l"]
    assert translator.translate_tokens([[]], [["k", "nowhere"]])[0].tokens == ["k", "<unk>"]
    assert translator.translate_tokens([[]], [["k"] * 9], max_decoding_length=4)[0].tokens == ["k"] * 4


def test_long_text_is_split_and_nothing_is_lost():
    translator = _translator(positions="table", max_positions=8, text_changes={"add_source_eos": True})
    assert translator.max_source_length == 7
    words = [LETTERS[i % 16] for i in range(40)]
    details = translator.translate(" ".join(words), details=True, max_decoding_length=3)
    assert [token for part in details.parts for token in part.source] == words
    assert all(len(part.source) <= 7 for part in details.parts)
    assert details.text == " ".join(" ".join(part.tokens) for part in details.parts)
    with refused(InputError, "40 tokens"):
        translator.translate(" ".join(words), split="never")


def test_sentences_are_split_when_asked_or_when_the_model_is_made_for_them():
    checkpoint = _checkpoint()
    vocabulary = (*VOCABULARY[:-2], "words.", "more.")
    checkpoint.text = dataclasses.replace(checkpoint.text, source_vocabulary=vocabulary)
    translator = Translator.from_checkpoint(checkpoint, ops=steady_ops, threads=1)
    text = "Some words. Other more. Last c"
    split = translator.translate(text, split="sentences", details=True, **SHORT)
    assert [" ".join(part.source) for part in split.parts] == ["Some words.", "Other more.", "Last c"]
    assert split.text == " ".join(translator.translate([" ".join(part.source) for part in split.parts], **SHORT))
    assert len(translator.translate(text, details=True, **SHORT).parts) == 1
    checkpoint.text = dataclasses.replace(checkpoint.text, single_sentences=True)
    single = Translator.from_checkpoint(checkpoint, ops=steady_ops, threads=1)
    assert single.translate(text, details=True, **SHORT) == split
    assert next(single.translate_iter([text], details=True, **SHORT)) == split
    assert len(single.translate(text, split="long", details=True, **SHORT).parts) == 1


def test_score_is_forced_decoding(translator):
    result = translator.translate("a b c", details=True, min_decoding_length=0, max_decoding_length=12)
    (part,) = result.parts
    score, empty, ended = translator.score(["a b c", "", "d"], [result.text, "e f", ""])
    assert score.tokens == [*result.text.split(), "</s>"] and score.log_probs.dtype == np.float32
    assert score.log_probs[: part.lengths[0]].sum() == pytest.approx(part.log_probabilities[0], rel=1e-5)
    np.testing.assert_array_equal(translator.score("a b c", result.text).log_probs, score.log_probs)
    assert empty.tokens == ["e", "f", "</s>"] and empty.log_probs.tolist() == [0, 0, 0]
    assert ended.tokens == ["</s>"] and ended.log_probs[0] < 0


def test_a_model_without_a_start_token_takes_it_from_the_prefix():
    translator = _translator({"decoder_start_token": None})
    (result,) = translator.translate_tokens([["a"]], [["k", "l"]], **SHORT)
    assert result.tokens[0] == "l"
    for call in (
        lambda: translator.translate("a"),
        lambda: list(translator.translate_iter(["a"])),
        lambda: translator.translate_tokens([["a"]]),
    ):
        with refused(InputError):
            call()


REFUSED = {
    "translate": [
        *(("a", option) for option in ({"split": "words"}, {"num_hypotheses": 2}, {"return_attention": True})),
        *(("a", option) for option in ({"beam_size": 0}, {"target_prefix": 5}, {"patience": 1e39})),
        *((texts, {}) for texts in (["a", 3], "a \ud800")),
        *((["a"], {"target_prefix": prefixes}) for prefixes in (["b", "c"], [5])),
        *(("a", {"suppress_sequences": wrong}) for wrong in (["zzz"], "a b", 5, [["a"]])),
        *(("a", {"end_token": token}) for token in ("nowhere", 19, -1, [True], [], 2.5)),
        *(("a", {"max_input_length": length}) for length in (-1, "5")),
    ],
    "translate_iter": [
        ("abc", {}),
        *((["a"], option) for option in ({"num_hypotheses": 2}, {"target_prefix": 5})),
        *((texts, {"target_prefix": iter(prefixes)}) for texts, prefixes in ((["a"], "bc"), (["a", "b"], "b"))),
    ],
    "translate_tokens": [
        *((sources, {}) for sources in ("ab", ["ab"], [["a"], [5]])),
        ([["a"]], {"target_prefix": [["b"], ["c"]]}),
        ([["a"]], {"suppress_sequences": ["a b"]}),
    ],
    "score": [("a", {"target": ["a"]}), (["a"], {"target": ["a", "b"]})],
    "generate_tokens": [
        *((["a"], option) for option in ({"beam_size": 2}, {"prefix_bias_beta": 0.5}, {"return_alternatives": True})),
        *((["a"], option) for option in ({"callback": print}, {"target_prefix": "a b"})),
        ("a", {"target_prefix": ["b"]}),
    ],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, translator):
    for first, options in REFUSED[name]:
        with refused(InputError):
            made = getattr(translator, name)(first, **options)
            list(made) if name == "translate_iter" else None


def test_tokens_over_the_limit_are_refused_not_cut():
    translator = _translator(positions="table", max_positions=4)
    for call in (
        lambda: translator.translate_tokens([["a"], ["a"] * 5]),
        lambda: translator.score_tokens([["a"] * 5], [["a"]]),
        lambda: translator.score("a", "a a a a a"),
    ):
        with refused(InputError):
            call()
    (result,) = translator.translate_tokens([["a"]], min_decoding_length=4, max_decoding_length=100)
    assert len(result.tokens) == 4, "the decoder has positions for no more"


def test_no_more_threads_than_asked_for_nor_than_there_may_be():
    asked, counting = set(), SimpleNamespace(**vars(steady_ops))
    counting.thread_limit = lambda: 8
    counting.use_threads = lambda count: asked.add(count) or contextlib.nullcontext()
    for threads, used in ((None, 8), (1, 1), (3, 3), (64, 8)):
        for call in (
            lambda made: made.translate("a b", **SHORT),
            lambda made: list(made.generate_tokens("a b", **SHORT)),
            lambda made: made.score("a b", "c"),
        ):
            asked.clear()
            call(_translator(threads=threads, ops=counting))
            assert asked == {used}


def test_what_a_translator_cannot_be_made_of():
    checkpoint = _checkpoint()
    for options in (*({"precision": wrong} for wrong in ("float31", "INT8", "", None, 8, ["int8"])), {"threads": 0}):
        with refused(InputError, *options):
            Translator.from_checkpoint(checkpoint, ops=steady_ops, **options)
    with refused(InputError):
        Translator(None)
    with refused(CheckpointError):
        Translator.from_checkpoint(dataclasses.replace(checkpoint, input=EncoderText(b"", 8)), ops=steady_ops)


def test_a_callback_knows_texts_parts_and_tokens_by_name(translator):
    texts, seen = ["a b", "", "c d\ne", "f"], []
    plain = translator.translate(texts, beam_size=1, details=True, **SHORT)
    streamed = translator.translate(texts, beam_size=1, callback=seen.append, **SHORT)
    assert streamed == [translation.text for translation in plain]
    told = {}
    for step in seen:
        told.setdefault((step.sentence, step.part), []).append(step.token)
    expected = {
        (number, part): [*tokens.tokens, *["</s>"] * (tokens.lengths[0] - len(tokens.tokens))]
        for number, translation in enumerate(plain)
        for part, tokens in enumerate(translation.parts)
    }
    assert told == expected and sorted(told) == [(0, 0), (2, 0), (2, 1), (3, 0)]
    numbers, options = set(), {"beam_size": 1, "max_decoding_length": 1}
    many = list(translator.translate_iter(["a"] * 600, callback=lambda step: numbers.add(step.sentence), **options))
    assert numbers == set(range(600)) and set(many) == {translator.translate("a", **options)}


def test_prefixes_are_read_alongside_the_texts(translator):
    read = []
    prefixes = (read.append(number) or "m" for number in range(5000))
    stream = translator.translate_iter(("a" for _ in range(5000)), target_prefix=prefixes, beam_size=1, **SHORT)
    assert next(stream).startswith("m ") and len(read) < 1000
    stream.close()


def test_a_source_is_cut_after_so_many_tokens():
    translator = _translator({"add_source_bos": True, "add_source_eos": True})
    long, cut = [["a", "b", "c", "d", "e"], ["f"]], [["a", "b", "c"], ["f"]]
    expected = translator.translate_tokens(cut, **SHORT)
    assert translator.translate_tokens(long, max_input_length=5, **SHORT) == expected
    assert translator.translate_tokens(long, max_input_length=0, **SHORT) == translator.translate_tokens(long, **SHORT)
    assert translator.translate("a b c d e", max_input_length=5, **SHORT) == translator.translate("a b c", **SHORT)
    assert translator.translate(["a b"], max_input_length=1, **SHORT) == [""]


def test_a_line_is_cut_before_it_is_split():
    words = " ".join(LETTERS[i % 16] for i in range(40))
    short = _translator(positions="table", max_positions=8)
    details = short.translate(words, details=True, max_input_length=19, **SHORT)
    assert [token for part in details.parts for token in part.source] == words.split()[:19]
    assert short.translate(words, split="never", max_input_length=8, **SHORT) == short.translate(
        " ".join(words.split()[:8]), **SHORT
    )
    assert short.translate_tokens([words.split()], max_input_length=8, **SHORT)[0].source == words.split()[:8]


def test_an_end_that_is_there_outlives_the_cut():
    for tokens, longest, changes, kept in [
        ("a b c d </s>", 3, {}, "a b </s>"),
        ("a b c </s> k", 4, {}, "a b </s> k"),
        ("a b c </s> k", 1, {}, "a"),
        ("a b c </s>", 1, {}, "</s>"),
        ("a b c d </s>", 3, {"add_source_eos": True}, "a b"),
        ("a b c d", 4, {"add_source_bos": True}, "a b c"),
        ("a b", 1, {"add_source_bos": True, "add_source_eos": True}, ""),
        ("a b", None, {}, "a b"),
    ]:
        text = dataclasses.replace(_checkpoint().text, **changes)
        assert TranslationTokenizer(text).cut(tokens.split(), longest) == kept.split()


@pytest.mark.parametrize(
    ("asked", "runs", "remark"),
    [
        *((same, same, None) for same in ("float32", "bfloat16", "intgemm")),
        *((name, "float32", None) for name in ("auto", "default")),
        ("int8_float32", "int8", None),
        *((name, "float32", f"'{name}' runs as 'float32', which") for name in ("float16", "int16")),
        *((f"int8_{rest}float16", "int8", "' runs as 'int8', all but its products as float32") for rest in ("", "b")),
    ],
)
def test_ctranslate2s_names_of_precisions(asked, runs, remark):
    checkpoint = _checkpoint()
    with contextlib.nullcontext() if remark is None else pytest.warns(UserWarning, match=remark) as told:
        translator = Translator.from_checkpoint(checkpoint, asked, ops=operations)
    assert translator.precision == runs
    if told:
        assert [warning.filename for warning in told] == [__file__]
    plain = Translator.from_checkpoint(checkpoint, runs, ops=operations)
    assert translator.translate("a b c", **SHORT) == plain.translate("a b c", **SHORT)
    if runs == "float32" and remark is None and asked != "float32":  # what follows the file
        assert Translator.from_checkpoint(dataclasses.replace(checkpoint, precision="int8"), asked).precision == "int8"


NAMES = vocabulary(19)
SOURCE = [NAMES[i] for i in (4, 9, 3, 12)]
VARIETIES = {
    "greedy": {},
    "penalties": {"repetition_penalty": 1.8, "no_repeat_ngram_size": 2, "min_decoding_length": 5},
    "samples": {"sampling_topk": 0, "sampling_temperature": 3.0, "num_hypotheses": 3, "seed": 5},
    "coldest samples": {"sampling_topk": 4, "sampling_temperature": 0, "num_hypotheses": 3},
    "another end": {"end_token": [NAMES[5], NAMES[6]], "return_end_token": True},
    "prefix": {"target_prefix": [NAMES[8], NAMES[6]]},
}


def build(ops=steady_ops, threads=1, **text):
    checkpoint = random_checkpoint(seed=47, sharpness=2.0)
    checkpoint.text = dataclasses.replace(checkpoint.text, **text)
    return Translator.from_checkpoint(checkpoint, ops=ops, threads=threads)


@pytest.mark.parametrize("ops", [steady_ops, operations], ids=["reference", "kernels"])
@pytest.mark.parametrize("name", VARIETIES)
def test_the_tokens_are_those_of_a_callback(name, ops):
    translator, options, seen = build(ops), dict(VARIETIES[name]), []
    prefix = options.pop("target_prefix", None)
    steps = list(translator.generate_tokens(SOURCE, prefix, **options, **SHORT))
    told = options | SHORT | {"beam_size": 1, "callback": seen.append}
    (result,) = translator.translate_tokens([SOURCE], [prefix], **told)
    assert steps == seen and all(isinstance(step, Step) for step in steps) and len(steps) > 1
    for number in {step.hypothesis for step in steps}:
        tokens = [step.token for step in steps if step.hypothesis == number]
        if tokens[-1] == "</s>":
            tokens.pop()
        assert tokens in result.hypotheses
        assert [step.is_last for step in steps if step.hypothesis == number][-1]


def test_a_texts_parts_come_one_after_the_other():
    translator = build(single_sentences=True)
    text = f"{NAMES[4]} {NAMES[5]}\n\n{NAMES[6]}"
    steps = list(translator.generate_tokens(text, NAMES[9], **SHORT))
    parts = translator.translate(text, target_prefix=NAMES[9], details=True, beam_size=1, **SHORT).parts
    assert [step.part for step in steps] == sorted(step.part for step in steps)
    for part, translated in enumerate(parts):
        tokens = [step.token for step in steps if step.part == part and step.token != "</s>"]
        assert tokens == translated.tokens
    assert steps[0].token == NAMES[9] and steps[0].log_probability == 0
    assert list(translator.generate_tokens("")) == list(translator.generate_tokens([])) == []


def test_who_asks_for_no_more_has_ended_the_work():
    counted = []

    def project(*arguments, **options):
        counted.append(threading.get_ident())
        return steady_ops.project_top_k(*arguments, **options)

    ops = SimpleNamespace(**vars(steady_ops) | {"project_top_k": project})
    translator, threads = build(ops), threading.active_count()
    steps = translator.generate_tokens(SOURCE, min_decoding_length=50, max_decoding_length=60)
    assert not counted, "nothing is done before it is asked for"
    next(steps), next(steps)
    assert len(counted) == 2 and threading.active_count() == threads
    steps.close()
    assert len(counted) == 2 and list(steps) == [] and set(counted) == {threading.get_ident()}


def test_what_the_caller_computes_in_between_has_its_own_threads():
    translator = build(operations, threads=1)
    for _ in translator.generate_tokens(SOURCE, **SHORT):
        assert operations.current_threads() == operations.thread_limit()


WORDS = vocabulary(19)[3:]
FEW = {"max_decoding_length": 4}
SHORTEST = {"max_decoding_length": 1, "beam_size": 1}  # where it matters which texts are translated, and not how


@pytest.fixture(scope="module")
def plain():
    return Translator.from_checkpoint(random_checkpoint(seed=21), ops=steady_ops, threads=1)


class Broken(Exception):
    """Of the source's own making."""


def source(count, error):
    for number in range(count):
        yield f"{WORDS[number % 16]} {WORDS[number // 16 % 16]}"
    raise error


def drain(stream):
    """What comes, and the error that ends it; nothing comes after."""
    given = []
    with pytest.raises(Exception) as caught:
        for result in stream:
            given.append(result)
    assert list(stream) == []
    return given, caught.value


@pytest.mark.parametrize(
    ("count", "error"), [(0, Broken("wire")), (1, RuntimeError("odd")), (300, InputError("a fault of the file's"))]
)
def test_texts_before_a_failing_source_are_translated(plain, count, error):
    texts = [text for text, _ in zip(source(count + 1, error), range(count))]
    given, raised = drain(plain.translate_iter(source(count, error), **SHORTEST))
    assert given == plain.translate(texts, **SHORTEST) and raised is error
    given, raised = drain(plain.translate_iter(source(count, error), return_exceptions=True, **SHORTEST))
    assert len(given) == count and raised is error  # it is no text's


def test_texts_before_a_failing_source_are_encoded():
    encoder, error = _encoder(), Broken("wire")
    given, raised = drain(encoder.encode_iter(source(20, error)))
    assert raised is error
    texts = [text for text, _ in zip(source(21, error), range(20))]
    np.testing.assert_allclose(np.stack(given), encoder.encode(texts), atol=1e-6)
    given, raised = drain(encoder.encode_iter(["a", None, "b"]))
    assert len(given) == 1 and isinstance(raised, InputError)


def test_prefixes_that_fail_and_that_run_out(plain):
    error = Broken("wire")
    texts = [WORDS[number] for number in range(6)]
    given, raised = drain(plain.translate_iter(texts, target_prefix=source(3, error), **FEW))
    assert len(given) == 3 and raised is error
    given, raised = drain(plain.translate_iter(texts, target_prefix=[None, "", WORDS[2]], **FEW))
    assert len(given) == 3 and "3 values, but more texts" in str(raised)


def test_an_interrupt_of_the_source_waits_for_nothing(plain):
    def interrupted():
        yield WORDS[0]
        raise KeyboardInterrupt

    seen = []
    with pytest.raises(KeyboardInterrupt):
        list(plain.translate_iter(interrupted(), beam_size=1, callback=seen.append, **FEW))
    assert seen == []


@pytest.fixture
def short_windows(monkeypatch):
    """The tokens of a window; texts below have two, and one that stands for themselves."""
    for name, size in (("FIRST_WINDOW", 6), ("LAST_WINDOW", 30), ("WINDOW_A_THREAD", 1)):
        monkeypatch.setattr(f"fastattn.decoding.worker.{name}", size)
    return 30


@pytest.mark.parametrize(("count", "threads"), [(0, 1), (1, 2), (2, 1), (3, 2), (4, 1), (40, 2)])
def test_windows_in_progress_together_give_what_one_call_does(short_windows, threads, count):
    plain = Translator.from_checkpoint(random_checkpoint(seed=21), ops=steady_ops, threads=threads)
    texts, read, given = [text for text, _ in zip(source(count + 1, Broken()), range(count))], [], []
    for result in plain.translate_iter((read.append(text) or text for text in texts), **FEW):
        assert len(read) <= len(given) + 3 * short_windows // 3 and (given or len(read) <= 2)
        given.append(result)
    assert given == plain.translate(texts, **FEW) and read == texts


def test_a_stream_that_is_left_ends_its_work(plain, short_windows):
    stream = plain.translate_iter(source(10_000, Broken()), **FEW)
    for _ in range(20):
        next(stream)
    stream.close()
    assert not plain._service.scheduler()._state.requests
    assert plain.translate(WORDS[0], **FEW) == next(plain.translate_iter([WORDS[0]], **FEW))


@pytest.mark.parametrize("wrong", [" ".join(WORDS * 4), "\ud800", None])
@pytest.mark.parametrize("number", [1, 5, 30])
def test_a_text_that_cannot_be_read_far_into_a_stream(short_windows, wrong, number):
    """Its error comes in its turn, or takes its place."""
    checkpoint = random_checkpoint(seed=21, positions="table", max_positions=20)
    limited, options = Translator.from_checkpoint(checkpoint, ops=steady_ops, threads=1), FEW | {"split": "never"}
    texts = [text for text, _ in zip(source(41, Broken()), range(40))]
    expected = limited.translate(texts, beam_size=1, **options)
    texts[number] = wrong
    given, raised = drain(limited.translate_iter(texts, beam_size=1, **options))
    assert given == expected[:number] and isinstance(raised, InputError)
    seen = set()
    options |= {"beam_size": 1, "callback": lambda step: seen.add(step.sentence)}
    results = list(limited.translate_iter(texts, return_exceptions=True, **options))
    assert isinstance(results[number], FastattnError) and str(results[number]) == str(raised)
    assert results[:number] + results[number + 1 :] == expected[:number] + expected[number + 1 :]
    assert seen == {*range(40)} - {number}, "texts keep their numbers"


LINES = [f"{WORDS[4]} {WORDS[5]}", "", WORDS[7], f"{WORDS[3]}\r{WORDS[8]}", WORDS[9]]


@pytest.fixture
def source_file(tmp_path):
    path = tmp_path / "source.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(LINES).encode())
    return path


def in_one_line(text):
    return text.replace("\r", " ")


def test_each_line_gives_a_line(plain, source_file, tmp_path, monkeypatch):
    output = tmp_path / "output.txt"
    clock = iter([1.0, 3.5])
    with monkeypatch.context() as patches:
        patches.setattr("fastattn.translation.translator.perf_counter", lambda: next(clock))
        stats = plain.translate_file(source_file, str(output), **FEW)
    details = plain.translate(LINES, details=True, **FEW)
    assert output.read_bytes().decode() == "".join(in_one_line(result.text) + "\n" for result in details)
    tokens = sum(len(part.tokens) for result in details for part in result.parts)
    assert isinstance(stats, ExecutionStats) and (stats.num_tokens, stats.num_examples) == (tokens, 5)
    assert stats.total_time_in_ms == 2500.0
    assert sorted(os.listdir(tmp_path)) == ["output.txt", "source.txt"]
    plain.translate_file(source_file, output, beam_size=1, **FEW)  # which needs no scores
    greedy = plain.translate(LINES, beam_size=1, **FEW)
    assert output.read_bytes().decode().split("\n") == [*map(in_one_line, greedy), ""]
    source_file.write_bytes(b"")
    stats = plain.translate_file(source_file, output)
    assert (stats.num_tokens, stats.num_examples) == (0, 0) and output.read_bytes() == b""


def test_prefixes_hypotheses_and_scores(plain, source_file, tmp_path):
    prefixes, output = tmp_path / "prefixes.txt", tmp_path / "output.txt"
    wished = [WORDS[9], "", "", WORDS[6], f"{WORDS[3]} {WORDS[3]}"]
    prefixes.write_text("\n".join(wished) + "\n", encoding="utf-8")
    options = FEW | {"beam_size": 3, "num_hypotheses": 2}
    plain.translate_file(source_file, output, prefixes, with_scores=True, **options)
    found = plain.translate(LINES, target_prefix=wished, details=True, **options)
    pairs = [pair for result in found for pair in zip(result.hypotheses, result.scores)]
    lines = output.read_text(encoding="utf-8").split("\n")
    assert lines == [*(f"{score:g} ||| {in_one_line(text)}" for text, score in pairs), ""] and len(pairs) == 10


def test_a_fault_leaves_what_was_there(plain, tmp_path):
    lines, output, begun = tmp_path / "source.txt", tmp_path / "output.txt", tmp_path / "prefixes.txt"
    for content, prefixes in [
        *((content, None) for content in (b"a\nb\xff\n", b"a\nb\0\n")),
        *((b"a\nb\nc\n", b"a\nb\n"), (b"a\n", b"a\nb\n"), (b"a\n", b"\xfe\n")),
    ]:
        lines.write_bytes(content)
        output.write_bytes(b"before")
        begun.write_bytes(prefixes or b"")
        with refused(InputError):
            plain.translate_file(lines, output, begun if prefixes else None, **FEW)
        assert output.read_bytes() == b"before" and {*tmp_path.iterdir()} == {lines, output, begun}


def test_what_cannot_be_opened_and_options_that_a_file_leaves_no_room_for(plain, source_file, tmp_path):
    output = tmp_path / "output.txt"
    paths = [(tmp_path / "nowhere", output), (source_file, tmp_path / "nowhere" / "output.txt")]
    paths += [(source_file, f"{tmp_path}/a\0b"), (0, output), (source_file, None)]
    wrong = [{"beam": 2}, {"details": True}, {"target_prefix": "a"}, {"return_exceptions": True}]
    wrong += [{"with_scores": True, "return_scores": False}]
    calls = [*((pair, {}) for pair in paths), *(((source_file, output), one) for one in wrong)]
    for files_of_call, options in calls:
        with refused(InputError, *options):
            plain.translate_file(*files_of_call, **options)
        assert os.listdir(tmp_path) == ["source.txt"]


@pytest.mark.parametrize("with_scores", [False, True])
def test_each_line_has_as_many_lines_however_few_its_hypotheses(plain, source_file, tmp_path, with_scores):
    """Few alternatives are as probable as this."""
    options = FEW | {"beam_size": 1, "num_hypotheses": 4, "return_alternatives": True}
    options["min_alternative_expansion_prob"] = 0.1
    found = [result.hypotheses for result in plain.translate(LINES, details=True, **options)]
    assert any(len(hypotheses) < 4 for hypotheses in found)
    plain.translate_file(source_file, tmp_path / "output.txt", with_scores=with_scores, **options)
    written = (tmp_path / "output.txt").read_bytes().decode().split("\n")[:-1]
    texts = [line.partition(" ||| ")[2] if with_scores and line else line for line in written]
    expected = [[*map(in_one_line, hypotheses), "", "", "", ""][:4] for hypotheses in found]
    assert [texts[first : first + 4] for first in range(0, len(texts), 4)] == expected


def test_lines_are_read_as_they_are_needed(plain, tmp_path, monkeypatch):
    (tmp_path / "source.txt").write_text(f"{WORDS[4]}\n" * 1200, encoding="utf-8")
    read, told, as_text = [], {}, files.as_text
    monkeypatch.setattr(files, "as_text", lambda *given: read.append(given) or as_text(*given))
    options = SHORTEST | {"callback": lambda step: told.setdefault(step.sentence, len(read)) and None}
    stats = plain.translate_file(tmp_path / "source.txt", tmp_path / "output.txt", **options)
    assert stats.num_examples == len(read) == 1200 and told.keys() == {*range(1200)} and told[0] < 600
    assert (tmp_path / "output.txt").read_text(encoding="utf-8").count("\n") == 1200
