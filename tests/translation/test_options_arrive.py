"""Options of a Translator's calls arrive at the decoding loop with their values, and so through what wraps it."""

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest

from fastattn import Translator
from fastattn.errors import InputError
from fastattn.processes.messages import message_parts, read_message
from fastattn.spec.text_spec import DecodingSettings, LanguageTokens, SearchRules
from fastattn.translation import child, worker_processes
from fastattn.translation.calls import Direction, LanguageOptions, SearchOptions, TextOptions, Translation
from fastattn.translation.chain import FIRST_OPTIONS, SECOND_OPTIONS, TranslatorChain
from fastattn.translation.detecting import DetectingTranslator
from fastattn.translation.glossary import GlossaryTranslator
from fastattn.translation.guarded import GuardedTranslator
from fastattn.translation.memory import UNCACHED_OPTIONS, CachedTranslator, MemoryTranslator
from tests.translation.arrivals import SEARCH, STEP, awaited, check_callers, check_options, jobs_of
from tests.translation.languages import tokens_of, told, write_folder
from tests.translation.test_translator import _translator

Call = Callable[..., Any]
IDS = {"suppress_sequences": [[3, 4], [5]], "end_token": [5]}  # of SEARCH's values
IN_TOKENS = {"suppress_sequences": [["a", "b"], ["c"]]}
TEXT_CALLS = {
    "translate": lambda t, **options: t.translate("a b", details=True, **options),
    "translate of several": lambda t, **options: t.translate(["a b", "b a"], details=True, **options),
    "submit": lambda t, **options: t.submit("a b", details=True, **options).result(),
    "translate_async": lambda t, **options: awaited(t.translate_async, "a b", details=True, **options),
    "translate_iter": lambda t, **options: next(t.translate_iter(["a b"], details=True, **options)),
}
STREAMS = {
    "text": lambda t, **options: next(t.generate_tokens("a b", **options)),
    "tokens": lambda t, **options: next(t.generate_tokens(["a", "b"], **options)),
}
NO_STREAM = ("beam_size", "prefix_bias_beta", "return_alternatives", "callback")


def only(values, options):
    return {name: value for name, value in values.items() if name in options}


def test_every_option_has_a_value():
    assert SEARCH.keys() == SearchOptions.__annotations__.keys()
    assert TextOptions.__annotations__.keys() == SEARCH.keys() | FIRST_OPTIONS | {"target_lang", "target_prefix"}
    assert LanguageOptions.__annotations__.keys() == SEARCH.keys() | {"source_lang", "target_lang"}


@pytest.mark.parametrize("call", TEXT_CALLS)
def test_options_of_texts(call):
    translator = _translator()
    for name, (value, beside) in SEARCH.items():
        options = beside | {name: value}
        jobs = jobs_of(TEXT_CALLS[call], translator, **options)
        check_options(jobs, translator.default_options, options, **only(IDS, options))
    (job,) = jobs_of(translator.translate, "a b", max_input_length=1)
    assert job.source.tolist() == [3] and not job.options.return_scores


def test_options_of_tokens_and_of_streams():
    translator = _translator()
    for name, (value, beside) in SEARCH.items():
        options, default = beside | {name: value}, translator.default_options
        in_tokens = options | only(IN_TOKENS, options)
        jobs = jobs_of(translator.translate_tokens, [["a", "b"]], **in_tokens)
        check_options(jobs, default, options, **only(IDS, options))
        for kind, given in (("text", options), ("tokens", in_tokens)):
            if name in NO_STREAM or "return_alternatives" in beside:
                with pytest.raises(InputError, match="generate_tokens"):
                    STREAMS[kind](translator, **given)
            else:
                jobs = jobs_of(STREAMS[kind], translator, **given)
                check_options(jobs, default, {"beam_size": 1} | options, **only(IDS, options))


def test_options_of_files(tmp_path):
    translator = _translator()
    (tmp_path / "in").write_text("a b\n")
    (tmp_path / "begun").write_text("c\n")
    files = tmp_path / "in", tmp_path / "out"
    for name, (value, beside) in SEARCH.items():
        options = beside | {name: value}
        jobs = jobs_of(translator.translate_file, *files, with_scores=name != "return_scores", **options)
        check_options(jobs, translator.default_options, options, **only(IDS, options))
    (job,) = jobs_of(translator.translate_file, *files, tmp_path / "begun")
    assert job.prefix == [5] and not job.options.return_scores


def test_callbacks_are_the_callers():
    seen = []
    for call in (*TEXT_CALLS.values(), lambda t, **options: t.translate_tokens([["a", "b"]], **options)):
        job = jobs_of(call, _translator(), beam_size=1, callback=seen.append)[0]
        job.options.callback(STEP)
    assert seen == [replace(STEP, token="a")] * (len(TEXT_CALLS) + 1)


# What is of a text: its languages, its prefix, how it is split


def test_languages_and_prefixes_of_texts():
    translator = told(LanguageTokens(tokens_of("nllb"), "before", "first"))
    words = translator._tokenizer.text.source_vocabulary
    ids = dict(zip(("en", "fr", "zh"), map(words.index, ("eng_Latn", "fra_Latn", "zho_Hans"))))
    for name, call in (*TEXT_CALLS.items(), ("generate_tokens", STREAMS["text"])):
        for source, target in (("en", "fr"), ("zh", "en")):
            jobs = jobs_of(call, translator, source_lang=source, target_lang=target, target_prefix="a b")
            assert [job.source[0] for job in jobs] == [ids[source]] * len(jobs), name
            assert all(job.prefix == [ids[target], words.index("a"), words.index("b")] for job in jobs), name
            assert {job.imposed_tokens for job in jobs} == {1}
    each = {"source_lang": ["en", "zh"], "target_lang": ["fr", None], "target_prefix": [None, "b"]}
    translator._resolver.direction = Direction(None, "fr", "en")
    for call in (translator.translate, lambda *texts, **options: translator.submit(*texts, **options).result()):
        jobs = jobs_of(call, ["a", "b"], **each)
        assert [job.source[0] for job in jobs] == [ids["en"], ids["zh"]]
        assert [job.prefix for job in jobs] == [[ids["fr"]], [ids["en"], words.index("b")]]
    assert jobs_of(translator.translate, "a")[0].source[0] == ids["fr"]


def test_how_texts_are_split(tmp_path):
    text, translator = "Some words. Other words.", _translator()
    (tmp_path / "in").write_text(text)
    for split, count in (("sentences", 2), ("long", 1), ("never", 1), (None, 1)):
        for call in (
            lambda **given: translator.translate(text, **given),
            lambda **given: translator.submit(text, **given).result(),
            lambda **given: next(translator.translate_iter([text], **given)),
            lambda **given: next(translator.generate_tokens(text, **given)),
            lambda **given: translator.translate_file(tmp_path / "in", tmp_path / "out", **given),
        ):
            assert len(jobs_of(call, split=split)[0].source) == 4 // count, split


def test_penalties_look_back_on_the_start_where_the_checkpoint_has_rules():
    assert not jobs_of(_translator().translate, "a")[0].penalizes_start
    ruled = _translator({"decoding": DecodingSettings(rules=SearchRules())})
    for call in (*TEXT_CALLS.values(), *STREAMS.values()):
        assert all(job.penalizes_start for job in jobs_of(call, ruled))


def test_callers_are_who_asks():
    translator = _translator()
    check_callers(lambda **of: translator.submit("a", **of), translator.translate_async)


# Worker processes: what is sent, and what the process makes of it


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A Translator that has processes, and what one of these does."""
    folder = write_folder(tmp_path_factory.mktemp("model"), "nllb")
    return Translator(folder, threads=1, processes=2), child.serve(str(folder), "float32", "cpu", 1)


def through_a_process(served, patch, call, *arguments, **options):
    """The jobs of a call as the process has them to which its only chunk goes."""
    translator, does = served
    sent = []

    class Sent(Exception):
        """Ends what would start a process."""

    def keep(what, content, texts):
        sent.append([what, *content])
        raise Sent

    patch.setattr(worker_processes, "_chunk", keep)
    patch.setattr(translator._pool, "least_texts", 1)
    with pytest.raises(Sent):
        call(translator, *arguments, **options)
    what, *content = read_message(BytesIO(b"".join(map(bytes, message_parts(sent[0])))))
    return jobs_of(lambda: does[what](1, *content).result())


def test_options_through_worker_processes(served, monkeypatch):
    translator, _ = served
    words, of_text = translator._tokenizer.text.target_vocabulary, {"source_lang": "en", "target_lang": "fr"}
    rules = SearchRules("never", True)
    lists = {"begin_suppress_tokens": [], "suppress_sequences": [], "end_token": [], "logit_bias": []}
    monkeypatch.setattr(translator._resolver._decoding, "settings", {"rules": rules})
    default = replace(translator.default_options, rules=rules)
    ids = {"suppress_sequences": [[words.index("a"), words.index("b")], [words.index("c")]], "end_token": [5]}
    calls = {name: call for name, call in TEXT_CALLS.items() if name != "translate of several"}
    calls["translate_tokens"] = lambda t, **given: t.translate_tokens([["eng_Latn", "a"]], [["fra_Latn"]], **given)
    for name, (value, beside) in SEARCH.items():
        for call in calls if name != "callback" else ():
            given = {name: IN_TOKENS.get(name, value)} if call == "translate_tokens" else of_text | {name: value}
            jobs = through_a_process(served, monkeypatch, calls[call], **given, **beside)
            check_options(jobs, default, {**beside, name: value}, **lists | only(ids, {name: value}))
            assert [list(job.prefix) for job in jobs] == [[words.index("fra_Latn")]], call
            assert jobs[0].source[0] == words.index("eng_Latn"), call


def test_what_is_of_texts_through_worker_processes(served, monkeypatch):
    given = {"source_lang": ["en", "zh"], "target_lang": ["fr", "en"], "target_prefix": ["a", None]}
    texts, words = ["Some words. Other words.", "b c d e f"], served[0]._tokenizer.text.target_vocabulary
    monkeypatch.setattr(worker_processes, "plan_chunks", lambda lengths, count, make: iter([make([0, 1])]))
    jobs = through_a_process(served, monkeypatch, Translator.translate, texts, split="sentences", **given)
    assert [words[job.source[0]] for job in jobs] == ["eng_Latn", "eng_Latn", "zho_Hans"]
    begun = [" ".join(words[index] for index in job.prefix) for job in jobs]
    assert begun == ["fra_Latn a", "fra_Latn", "eng_Latn"]
    assert not jobs[0].options.return_scores
    monkeypatch.setattr(worker_processes, "plan_chunks", lambda lengths, count, make: iter([make([1, 0])]))
    jobs = through_a_process(served, monkeypatch, Translator.translate_tokens, [["a"], ["b"]], [["c"], ["d"]])
    assert [[words[index] for index in (*job.source, *job.prefix)] for job in jobs] == [["b", "d"], ["a", "c"]]


# What is made of other translators


class Recorder:
    """A translator that notes the options with which it is called."""

    def __init__(self):
        self.asked: list[dict[str, Any]] = []
        self.texts: list[str] = []

    def translate_iter(self, texts, **options):
        self.asked.append(options)
        texts = [self.texts.append(text) or text for text in texts]
        return iter([Translation(f"{text}!", [f"{text}!"], [-1.0], []) for text in texts])

    def translate(self, text, **options):
        self.asked.append(options)
        return Translation(text, [text], [-1.0], [])


OF_TEXTS = SEARCH | {
    "target_prefix": ("c", {}),
    "split": ("never", {}),
    "source_lang": ("de", {}),
    "target_lang": ("fr", {}),
}
TEXT = "Das Wetter ist heute sehr schön."
WRAPPED = {
    "glossary without its terms": lambda made, path: GlossaryTranslator(made, {"none": "keiner"}),
    "glossary": lambda made, path: GlossaryTranslator(made, {"wetter": "Wetter"}),
    "memory": lambda made, path: MemoryTranslator(made, {"none": "keiner"}),
    "cache": lambda made, path: CachedTranslator(made, str(path / "cache.db"), "model"),
    "guard": lambda made, path: GuardedTranslator(made),
    "detection": lambda made, path: DetectingTranslator("fr", lambda code: made),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_options_through_translators_of_translators(name, tmp_path):
    for option, (value, _) in OF_TEXTS.items():
        made = Recorder()
        if "glossary" in name and option in ("target_prefix", "num_hypotheses", "callback"):
            continue
        (found,) = WRAPPED[name](made, tmp_path).translate([TEXT], details=True, **{option: value})
        assert found.text in (TEXT + "!", TEXT)
        of_search = [
            {k: v for k, v in asked.items() if k not in ("details", "return_exceptions")} for asked in made.asked
        ]
        ways = [{option: value}, {option: value, "return_attention": True}]
        assert of_search and of_search[-1] in ways, option
        assert all(asked["details"] is True for asked in made.asked)


def test_options_through_chains():
    for option, (value, _) in OF_TEXTS.items():
        first, second = Recorder(), Recorder()
        TranslatorChain(first, second).translate(["a"], details=True, **{option: value})
        for made, has in ((first, option not in SECOND_OPTIONS), (second, option not in FIRST_OPTIONS)):
            assert (option in made.asked[0]) == has, option
            if has and option != "num_hypotheses":
                assert made.asked[0][option] == value
    assert FIRST_OPTIONS == {"source_lang", "split"} and not FIRST_OPTIONS & SECOND_OPTIONS


def test_a_guard_decodes_again_by_the_same_options():
    loop, again = Translation("la " * 9, ["la " * 9], [-1.0], []), {"details": True, "no_repeat_ngram_size": 3}
    for option, (value, _) in OF_TEXTS.items():
        made = Recorder()
        GuardedTranslator(made)._decode_again("x", loop, {option: value})
        assert option == "no_repeat_ngram_size" or made.asked[0] == {option: value} | again


def test_what_changes_a_translation_is_part_of_a_caches_key(tmp_path):
    """What is drawn, and what a cache has no room for, goes past it each time."""
    for option, (value, _) in (OF_TEXTS | {"sampling_topk": (0, {})}).items():
        made = Recorder()
        cached = CachedTranslator(made, str(tmp_path / "cache.db"), option)
        for options in ({}, {option: value}, {option: value}, {}, {option: None}):
            assert cached.translate("a", details=option != "return_alternatives", **options)
        times = made.texts.count("a")
        assert times == 4 if option in UNCACHED_OPTIONS else times == 3, option
    assert {"sampling_topk", "sampling_topp", "sampling_minp", "sampling_temperature"} < {*UNCACHED_OPTIONS}
