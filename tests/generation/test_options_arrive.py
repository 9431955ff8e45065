"""Options of calls of Generator and LanguageModelTranslator arrive at the decoding loop, and limits count exactly."""

from dataclasses import replace

import pytest

from fastattn.errors import InputError
from fastattn.generation import language_model_translator
from fastattn.generation.calls import GenerationOptions, GenerationSearch
from fastattn.generation.generator import Generator
from fastattn.generation.language_model_translator import LONGEST_PART, LanguageModelTranslator
from fastattn.spec.architecture import PositionSpec
from fastattn.text.splitting import split_to_fit
from tests.generation.language_models import END, START, checkpoint, make, with_stack
from tests.generation.test_generator import ids_of as ids
from tests.generation.test_language_model_translator import completion, generator_of
from tests.messages import refused
from tests.translation.arrivals import COMMON, STEP, awaited, check_callers, check_options, jobs_of

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{{ shown }}|"
CHAT = [{"role": "user", "content": "the end"}]
SEARCH = COMMON | {"min_new_tokens": (4, {}), "max_new_tokens": (9, {}), "suppress_sequences": (["th", "x"], {})}
FIELDS = {"min_new_tokens": "min_decoding_length", "max_new_tokens": "max_decoding_length"}
BESIDE = {"stop", "context", "special_tokens", "regex", "json_schema", "speculate", "logit_bias"}
BESIDE |= {"return_log_probs", "top_log_probs"}
CALLS = {
    "generate": lambda g, prompt="the", **options: g.generate(prompt, details=True, **options),
    "generate of several": lambda g, prompt="the", **options: g.generate([prompt, "an"], details=True, **options)[0],
    "submit": lambda g, prompt="the", **options: g.submit(prompt, details=True, **options).result(),
    "generate_async": lambda g, prompt="the", **options: awaited(g.generate_async, prompt, details=True, **options),
    "generate_iter": lambda g, prompt="the", **options: next(g.generate_iter([prompt], details=True, **options)),
}
STREAMS = {
    "stream": lambda g, prompt="the", **options: next(g.stream(prompt, **options)),
    "stream_async": lambda g, prompt="the", **options: awaited(g.stream_async, prompt, **options),
}
TRANSLATIONS = {
    "translate": lambda t, text="the", **options: t.translate(text, details=True, **options),
    "translate of several": lambda t, text="the", **options: t.translate([text, "an"], details=True, **options)[0],
    "submit": lambda t, text="the", **options: t.submit(text, details=True, **options).result(),
    "translate_iter": lambda t, text="the", **options: next(t.translate_iter([text], details=True, **options)),
}


@pytest.fixture(scope="module")
def generator():
    return make()


@pytest.fixture(scope="module")
def translator(generator):
    return LanguageModelTranslator(generator, "en", "fr", prompt="alma")


def test_every_option_has_a_value():
    assert SEARCH.keys() == GenerationSearch.__annotations__.keys()
    assert GenerationOptions.__annotations__.keys() == SEARCH.keys() | BESIDE | {"messages", "template_variables"}


def check(generator, call, made, without=(), **always):
    """Each option of a search comes to the loop by a call; ``always``: fields that the call itself sets."""
    for name, (value, beside) in SEARCH.items():
        if name in without:
            continue
        options = {FIELDS.get(one, one): given for one, given in (beside | {name: value}).items()}
        fields = {"return_end_token": True} | always
        if name == "suppress_sequences":
            fields[name] = [ids(generator, text, False) for text in value]
        if name == "end_token":
            fields[name] = [value]
        if any(one.startswith("sampling") for one in options):
            fields["sampling_topk"] = options.get("sampling_topk", 0)
        fields |= {one: options[one] for one in always.keys() & options.keys()}
        check_options(jobs_of(call, made, **beside | {name: value}), generator.default_options, options, **fields)


@pytest.mark.parametrize("call", CALLS)
def test_options_of_a_search(generator, call):
    check(generator, CALLS[call], generator)


def test_who_asks_for_what_only_samples_have_wants_samples(generator):
    for options in ({"sampling_topp": 0.5}, {"sampling_minp": 0.5}, {"sampling_temperature": 0.5}):
        (job,) = jobs_of(generator.generate, "a", **options)
        assert (job.options.sampling_topk, job.options.beam_size) == (0, 1), options
    assert jobs_of(make(sampling_topk=9).generate, "a", sampling_topp=0.5)[0].options.sampling_topk == 9


def test_callers_are_who_asks(generator, translator):
    check_callers(lambda **of: generator.submit("a", **of), generator.generate_async)
    check_callers(lambda **of: translator.submit("a", **of), generator.generate_async)
    check_callers(lambda **of: next(generator.stream("a", **of)), generator.generate_async)


@pytest.mark.parametrize("call", STREAMS)
def test_options_of_streams(generator, call):
    made, without = STREAMS[call], ("beam_size", "num_hypotheses", "callback")
    for name, (value, beside) in SEARCH.items():
        if name in without:
            with pytest.raises(InputError, match="stream "):
                made(generator, **beside | {name: value})
            continue
        (job,) = jobs_of(made, generator, **beside | {name: value})
        (plain,) = jobs_of(generator.generate, "the", details=True, **beside | {name: value})
        assert job.options.callback is not None
        assert replace(job.options, callback=None) == plain.options, name
        assert (job.allowance and job.allowance.seconds) == (value if name == "timeout" else None)


@pytest.mark.parametrize("call", [*CALLS, *STREAMS])
def test_what_is_beside_a_search(generator, call):
    def job(**options):
        return jobs_of((CALLS | STREAMS)[call], generator, **options)[0]

    assert job().start == ids(generator, "the") and job().start[0] == START and job().penalizes_start
    assert job(special_tokens=False).start == ids(generator, "the", False)
    assert job(stop=["xyz", "end"]).stop.is_end(ids(generator, "an end", False)) and job().stop is None
    assert not job(stop="xyz").stop.is_end(ids(generator, "an end", False))
    assert (job(return_log_probs=True).with_log_probs, job().with_log_probs) == (True, False)
    assert (job(return_log_probs=True, top_log_probs=3).top_count, job().top_count) == (3, 0)
    assert (job(logit_bias={5: 2, 6: 0.0}).options.logit_bias, job().options.logit_bias) == (((5, 2.0),), ())
    assert (job(speculate="prompt").speculate, job().speculate) == ("prompt", None)
    assert job(speculate=generator).speculate is generator._service.model
    for option, text in (("regex", "no|yes"), ("json_schema", {"const": "no"})):
        pytest.importorskip("llguidance")
        allowed = job(**{option: text}).constraint()
        (first,) = ids(generator, "n" if option == "regex" else '"', False)
        assert allowed.allowed([])[first] and not allowed.allowed([])[ids(generator, "z", False)[0]]
    small = make(max_length=8)
    (cut,) = jobs_of((CALLS | STREAMS)[call], small, prompt="x" * 20, context="cut")[:1]
    assert len(cut.start) == 4


def test_messages_and_variables_make_the_prompt():
    pytest.importorskip("jinja2")
    generator = generator_of(TEMPLATE)
    calls = {
        "generate": lambda **options: generator.generate(**options),
        "submit": lambda **options: generator.submit(**options).result(),
        "generate_async": lambda **options: awaited(generator.generate_async, **options),
        "stream": lambda **options: next(generator.stream(**options)),
        "stream_async": lambda **options: awaited(generator.stream_async, **options),
        "generate_iter": lambda messages, **options: next(generator.generate_iter(messages=[messages], **options)),
    }
    for name, call in calls.items():
        (job,) = jobs_of(call, messages=CHAT, template_variables={"shown": "!"})
        assert job.start == ids(generator, "the end!|", False), name
    (job,) = jobs_of(calls["generate"], messages=CHAT, special_tokens=True)
    assert job.start == ids(generator, "the end|")


def test_a_callback_is_the_callers(generator):
    seen = []
    for call in CALLS.values():
        jobs_of(call, generator, callback=seen.append)[0].options.callback(replace(STEP, token_id=5))
    assert seen == [replace(STEP, token_id=5, token=generator._tokenizer.token(5))] * len(CALLS)


# A language model that translates


@pytest.mark.parametrize("call", TRANSLATIONS)
def test_options_of_translations(generator, translator, call):
    check(generator, TRANSLATIONS[call], translator, ("callback",), max_decoding_length=2 * LONGEST_PART)
    (job, *_) = jobs_of(TRANSLATIONS[call], translator, stop="end", return_log_probs=True, speculate="prompt")
    assert job.start == ids(generator, completion("the"))
    assert job.stop.is_end(ids(generator, "the end", False)) and job.with_log_probs and job.speculate == "prompt"
    assert not job.stop.is_end(ids(generator, "the en", False))
    assert job.stop.is_end(ids(generator, "\nTranslate this from", False))  # as the prompt says
    (job, *_) = jobs_of(TRANSLATIONS[call], translator, special_tokens=False)
    assert job.start == ids(generator, completion("the"))  # the prompt is what the model was trained with
    pytest.importorskip("llguidance")
    assert jobs_of(TRANSLATIONS[call], translator, regex="a")[0].constraint is not None
    pytest.importorskip("jinja2")
    hunyuan = LanguageModelTranslator(generator_of(TEMPLATE), "en", "fr", prompt="hy-mt")
    for options, begun in (
        ({"terms": {"cat": "chat"}}, "参考下面的翻译：\ncat 翻译成 chat"),
        ({"context": "Be."}, "Be."),
    ):
        (job, *_) = jobs_of(TRANSLATIONS[call], hunyuan, **options)
        assert hunyuan.generator._tokenizer.decode(job.start).startswith(begun)


def test_a_paragraph_is_split_above_the_longest_part_by_its_own_language(generator, translator, monkeypatch):
    asked = []

    def split(text, length_of, limit, language):
        asked.append((limit, language))
        return split_to_fit(text, length_of, limit, language)

    monkeypatch.setattr(language_model_translator, "split_to_fit", split)
    for count, parts in ((LONGEST_PART - 1, 1), (LONGEST_PART, 1), (LONGEST_PART + 1, 2)):
        assert len(jobs_of(translator.translate, "x" * count)) == parts
    assert set(asked) == {(LONGEST_PART, "en")}
    asked.clear()
    other = LanguageModelTranslator(generator, "zh", "pt", prompt="alma")
    jobs_of(other.translate, "x")
    assert asked == [(LONGEST_PART, "zh")]
    small = LanguageModelTranslator(generator_of(max_length=150), "en", "fr", prompt="alma")
    limit = (150 - len(ids(generator, completion("x")))) // 3
    for count, parts in ((limit, 1), (limit + 1, 2)):
        jobs = jobs_of(small.translate, "x" * count)
        assert len(jobs) == parts and {job.options.max_decoding_length for job in jobs} == {2 * limit}


# Contexts: a prompt and its answer together


def job_of(generator, count, **options):
    prompt = [START, *(2 + n % 250 for n in range(count - 1))]
    (job,) = jobs_of(generator.generate, prompt, **options)
    assert job.start in (prompt, [START, *prompt[len(prompt) - len(job.start) + 1 :]])
    return job


def test_answers_have_256_tokens_unless_the_context_has_less_room():
    free, model = make(), make(max_length=1024)
    assert job_of(free, 5000).options.limit(0, 0) == job_of(model, 768).options.limit(0, 0) == 256
    for count, left in ((767, 256), (768, 256), (769, 255), (1022, 2), (1023, 1)):
        job = job_of(model, count)
        assert (len(job.start), job.options.limit(0, 0)) == (count, left)
    for count in (1024, 1025):
        with refused(InputError, f"prompt 0 has {count} tokens"):
            model.generate([5] * count)
    job = job_of(model, 1020, min_new_tokens=10, max_new_tokens=10)
    assert (job.options.min_decoding_length, job.options.max_decoding_length) == (4, 4)


@pytest.mark.parametrize(("asked", "kept"), [(None, 768), (1, 1023), (511, 513), (512, 512), (513, 512), (9999, 512)])
def test_a_context_that_is_cut_leaves_room_for_the_answer_but_half_at_most(asked, kept):
    model = make(max_length=1024)
    given = {"context": "cut"} | ({} if asked is None else {"max_new_tokens": asked})
    for count in (kept - 1, kept, kept + 1, 1023, 1024, 1025, 3000):
        job = job_of(model, count, **given)
        assert len(job.start) == min(count, kept)
        assert job.options.limit(0, 0) == min(256 if asked is None else asked, 1024 - len(job.start))


def test_an_odd_context_and_one_of_positions_are_cut_too():
    assert len(job_of(make(max_length=9), 20, context="cut").start) == 5
    positions = with_stack(positions=PositionSpec("table", limit=64))
    assert make(stack=positions, max_length=32).max_length == make(stack=positions, max_length=0).max_length // 2 == 32
    (job,) = jobs_of(make(max_length=9, adds_start=False).generate, [5, 6, 7] * 5, context="cut")
    assert job.start == [6, 7, 5, 6, 7]


def test_scores_of_a_whole_context():
    model = make(max_length=24)
    assert len(model.score([5] * 24).tokens) == 24
    with refused(InputError, "text 0 has 25 tokens"):
        model.score([5] * 25)


def with_positions(limit):
    """The same model with as many of its positions."""
    given = checkpoint(stack=with_stack(positions=PositionSpec("table", limit=64)), end_ids=())
    spec = replace(given.spec, decoder=with_stack(positions=PositionSpec("table", limit=limit)))
    tensors = {name: tensor[:limit] if len(tensor) == 64 else tensor for name, tensor in given.tensors.items()}
    return Generator.from_checkpoint(replace(given, spec=spec, tensors=tensors), "float32")


def test_proposals_end_with_the_positions_of_the_model_and_of_the_draft():
    """A draft that is the model itself is always right: each pass takes what it proposes, and a token more."""
    generator, prompt = with_positions(64), [7, 8, 9]
    plain = generator.generate(prompt, max_new_tokens=61, details=True)
    # From 3 tokens ahead on, then 7: what the last position would be for is not proposed.
    for limit, proposed in ((64, 52), (13, 9), (12, 8), (11, 7), (5, 2), (4, 1), (3, 0)):
        found = generator.generate(prompt, max_new_tokens=61, speculate=with_positions(limit), details=True)
        assert (found.tokens, found.proposed, found.accepted) == (plain.tokens, proposed, proposed), limit
    assert len(plain.tokens) == 61


def test_an_end_of_its_own_is_not_the_checkpoints(generator):
    assert jobs_of(generator.generate, "a")[0].options.end_token == (END,)
    assert jobs_of(generator.generate, "a", end_token=[7, END])[0].options.end_token == [7, END]
    assert checkpoint().text.end_ids == (END,)
