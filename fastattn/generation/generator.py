"""Generator: continues prompts with a language model."""

import os
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any, Literal, overload

import numpy as np

from fastattn.decoding.options import DecodingOptions, Step
from fastattn.decoding.search import Hypothesis, Job, allowances, search_plan, timeout_error
from fastattn.decoding.worker import DecodingService, in_windows, read_each
from fastattn.errors import CheckpointError, FastattnError, InputError, check_bool, check_several, without_errors
from fastattn.generation.calls import (
    Generation,
    GenerationCall,
    GenerationOptions,
    GenerationResolver,
    Prompt,
    TextScore,
)
from fastattn.generation.prompts import ContextReader, Conversations, check_prompt, is_one_prompt
from fastattn.generation.text import AnswerText, GeneratorTokenizer, RunningAnswer
from fastattn.loading.loaded_model import ModelBase, wrong_model_error
from fastattn.scheduling.request import Plan, await_result
from fastattn.scheduling.scheduler import Scheduler
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import GeneratorText
from fastattn.system.option_names import GENERATION, MODEL, Unpack, explains_options
from fastattn.text.chat import ChatTemplate

NO_SOURCE = np.zeros(0, np.int32)


class Generator(ModelBase):
    """Continues texts with the checkpoint of a language model: a decoder without an encoder.

    path, precision, threads, device  see ``ModelBase.__init__``. A precision may be "int4", which "auto" means for a
               checkpoint that holds int4
    cache_precision  of each token's keys and values: "float32", "bfloat16", "int8" (with a scale a head), or "auto"
               (float32 where precision is, else bfloat16)

    An answer depends on its own prompt alone: it has the same bits whatever the other prompts and the number of threads
    are, and whether or not its beginning was computed before. One Generator may serve several Python threads at once:
    their calls share steps. Raises CheckpointError for a path without a valid checkpoint of such a model.
    """

    _cache_precision = "auto"

    @explains_options(MODEL)
    def __init__(
        self,
        path: str | os.PathLike,
        precision: str = "auto",
        threads: int | None = None,
        processes: int | None = None,
        device: str = "cpu",
        cache_precision: str = "auto",
    ):
        self._cache_precision = cache_precision
        super().__init__(path, precision, threads, processes, device)

    def _check(self, checkpoint: Checkpoint) -> Checkpoint:
        text, spec = checkpoint.text, checkpoint.spec
        if not isinstance(text, GeneratorText):
            raise wrong_model_error("a language model's", checkpoint)
        if spec.decoder is None or spec.encoder is not None:
            raise CheckpointError(f"expected a decoder's checkpoint, got {spec.kind!r}")
        vocabulary, positions = spec.decoder.vocabulary, spec.decoder.max_positions
        if any(not 0 <= end < vocabulary for end in text.end_ids):
            raise CheckpointError(f"end tokens should have ids from 0 to {vocabulary - 1}, got {list(text.end_ids)}")
        # The lesser of the tokenizer's limit and the model's; 0: no limit.
        self._context = min(filter(None, (text.max_length, positions)), default=0)
        self._tokenizer = GeneratorTokenizer(text, vocabulary)
        self._reader = ContextReader(self._tokenizer, self._context)
        self._resolver = GenerationResolver(text, self._tokenizer)
        self._conversations = Conversations(text)
        return checkpoint

    def _prepare(self) -> None:
        self._loaded.model.set_cache_precision(self._cache_precision)
        self._reader.threads = self._loaded.threads
        self._service = DecodingService(self._loaded.model, -1, -1, self._loaded.threads)  # calls name their end tokens
        self._scheduler = self._service.scheduler()

    @property
    def layer_weights(self) -> int:
        """About how many weights the layers of a step have."""
        return self._service.model.sizes.layer_weights

    @property
    def max_length(self) -> int:
        """The context: the most ids of a prompt and its answer together; 0: no limit."""
        return self._context

    @property
    def has_chat_template(self) -> bool:
        """Whether the checkpoint has a template for conversations."""
        return bool(self._conversations.template_source)

    @property
    def chat_template(self) -> ChatTemplate:
        """The template that makes a prompt of a conversation; InputError for a checkpoint without one."""
        return self._conversations.template

    @property
    def default_options(self) -> DecodingOptions:
        """The options of a call that sets none: greedy search, but for the checkpoint's own settings.

        ``max_decoding_length`` is ``max_new_tokens`` here.
        """
        return self._resolver.default

    @overload
    def generate(  # type: ignore[overload-overlap]
        self, prompts: str | np.ndarray, *, details: Literal[False] = ..., **options: "Unpack[GenerationOptions]"
    ) -> str: ...
    @overload
    def generate(
        self, prompts: str | np.ndarray, *, details: Literal[True], **options: "Unpack[GenerationOptions]"
    ) -> Generation: ...
    @overload
    def generate(
        self, prompts: Iterable[Any] | None = ..., *, details: bool = ..., **options: "Unpack[GenerationOptions]"
    ) -> Any: ...

    def generate(
        self,
        prompts: str | Iterable[Any] | None = None,
        *,
        details: bool = False,
        **options: "Unpack[GenerationOptions]",
    ) -> Any:
        """The model's answer to a prompt: a str, or with ``details`` a Generation; of several prompts, a list.

        prompts   a text, a list of token ids, or several of these
        messages  instead of prompts, a conversation or several: {"role": str, "content": str} of each message. The
                  checkpoint's chat template makes the prompt, with ``template_variables``; needs fastattn[chat]
        max_new_tokens  the most tokens of an answer (None: 256); min_new_tokens: end tokens are suppressed for so many
        stop      a text or several; an answer ends before the first of them, wherever tokens begin and end
        context   a prompt without room for an answer within ``max_length`` is an InputError ("refuse"), or is cut at
                  its beginning ("cut"): then max_new_tokens have room, but at most half the context
        logit_bias  id -> what is added to the id's logit, before penalties and a temperature
        special_tokens  False: none are added, since the prompt has its special tokens already, for example a template's
        return_log_probs  with details, the log-probability of each token
        top_log_probs  with return_log_probs, also those of so many most probable tokens in the place of each token
        regex, json_schema  a whole answer matches the expression, of Rust's regex crate, or the schema, a dict or its
                  text. An end token may come only where the answer matches, and probabilities are among the tokens that
                  may come. max_new_tokens may still cut an answer: then it is only the beginning of a match, and its
                  finish_reason is "length". Needs fastattn[constrain]
        speculate  "prompt": propose what stood behind an earlier match of the last tokens, in the prompt or the answer;
                  a Generator with the same vocabulary: propose that smaller model's choices. The same bits in fewer
                  steps, and in less time where proposals are right: see docs/speculation.md; needs beam_size=1
        Other options are those of ``DecodingOptions``: greedy search by default, samples with an option whose name
        begins with sampling_. repetition_penalty, no_repeat_ngram_size and suppress_sequences look back on the prompt
        too, as in transformers; presence_penalty and frequency_penalty on the answer alone, as in vLLM. Raises
        InputError for invalid options and prompts, SearchTimeout.
        """
        scheduler, make_plan = self._scheduler_and_plan(prompts, details, options)
        return scheduler.run(make_plan)

    def submit(
        self,
        prompts: str | Iterable[Any] | None = None,
        *,
        details: bool = False,
        caller: Hashable = None,
        **options: "Unpack[GenerationOptions]",
    ) -> "Future[Any]":
        """``generate`` as a Future, which other threads compute together with other requests.

        caller  whoever asks, any hashable value: callers get equal shares; None: this thread
        """
        scheduler, make_plan = self._scheduler_and_plan(prompts, details, options, is_submitted=True)
        return scheduler.submit(make_plan, caller)

    async def generate_async(
        self,
        prompts: str | Iterable[Any] | None = None,
        *,
        details: bool = False,
        caller: Hashable = None,
        **options: "Unpack[GenerationOptions]",
    ) -> Any:
        """``generate`` for asyncio: ``submit``, awaited. ``caller`` is by default the task."""
        return await await_result(partial(self.submit, prompts, details=details, **options), caller)

    def generate_iter(
        self,
        prompts: Iterable[Prompt] | None = None,
        *,
        details: bool = False,
        return_exceptions: bool = False,
        **options: "Unpack[GenerationOptions]",
    ) -> Iterator[Any]:
        """Yield the answer to each prompt in order, like ``generate`` with the same options.

        Reads some thousand tokens ahead, so memory is bounded. An error is raised after all earlier answers; with
        ``return_exceptions`` the FastattnError of a prompt is yielded in the place of its answer. ``messages``: an
        iterable of conversations, instead of prompts.
        """
        prompts, render, options = self._conversations.take_messages(prompts, options)
        call = self._resolver.call(options, details)
        check_bool("return_exceptions", return_exceptions)

        def read_one(number: int, prompt: Any) -> tuple[int, np.ndarray]:
            return self._reader.read_one(call, number, prompt if render is None else render(prompt))

        source = read_each(check_several("prompts", prompts, "an iterable of prompts"), read_one)
        make_plan = partial(self._plan, call=call)
        return in_windows(self._service, source, make_plan, call.decoding, return_exceptions)

    def stream(
        self, prompt: Prompt | None = None, *, caller: Hashable = None, **options: "Unpack[GenerationOptions]"
    ) -> Iterator[str]:
        """Yield the text of an answer in pieces as it comes: whole characters, nothing of a stop string.

        Options are those of ``generate``, for greedy search or sampling. Other callers' answers share the steps;
        closing the iterator ends the work. Raises InputError for invalid options.
        """
        return self._stream(*self._ids_and_call(prompt, options), caller)

    async def stream_async(
        self, prompt: Prompt | None = None, *, caller: Hashable = None, **options: "Unpack[GenerationOptions]"
    ) -> AsyncIterator[str | Generation]:
        """``stream`` for asyncio; behind the last piece comes the whole answer as a Generation."""
        import asyncio  # 30 ms

        steps, loop = asyncio.Queue[Step | None](), asyncio.get_running_loop()

        def put(step: Step | None) -> None:
            loop.call_soon_threadsafe(steps.put_nowait, step)

        running_answer = self._begin_answer(*await asyncio.to_thread(self._ids_and_call, prompt, options), caller, put)
        try:
            while (step := await steps.get()) is not None:
                if piece := running_answer.piece(step):
                    yield piece
            if piece := running_answer.end():
                yield piece
            yield self._generation(running_answer.job, running_answer.hypothesis, running_answer.answer)
        finally:
            running_answer.request.cancel()

    def _ids_and_call(self, prompt: Prompt | None, options: GenerationOptions) -> tuple[np.ndarray, GenerationCall]:
        """The ids of a prompt whose answer is streamed, and the checked options."""
        prompt, options = self._conversations.render(prompt, options)
        call = self._resolver.call(options, details=True)
        if not call.decoding.is_greedy or call.decoding.num_hypotheses > 1:
            raise InputError("stream needs beam_size=1 and num_hypotheses=1")
        if call.decoding.callback is not None:
            raise InputError("stream takes no callback: it yields what comes")
        (ids,) = self._reader.read(self._reader.check([prompt]), call)
        return ids, call

    def decode(self, ids: Sequence[int], exact: bool = False) -> str:
        """The text of token ids, without special tokens; InputError for an id that the vocabulary lacks.

        exact  whether special tokens have their names, and bytes that are no whole character are lone surrogates
        """
        checked_ids = np.asarray(check_prompt(list(ids), 0, self._tokenizer.vocabulary)).tolist()
        return "".join(map(self._tokenizer.token_text, checked_ids)) if exact else self._tokenizer.decode(checked_ids)

    @overload
    def score(self, texts: str | np.ndarray, *, special_tokens: bool = ..., top_log_probs: int = ...) -> TextScore: ...  # type: ignore[overload-overlap]
    @overload
    def score(self, texts: Iterable[Any], *, special_tokens: bool = ..., top_log_probs: int = ...) -> Any: ...

    @explains_options(GENERATION)
    def score(self, texts: str | Iterable[Any], *, special_tokens: bool = True, top_log_probs: int = 0) -> Any:
        """The log-probability of each token of a text but the first, given the tokens before; of several texts, a list.

        ``TextScore.perplexity`` sums it up. Texts may be lists of ids; a text of more ids than ``max_length`` is an
        InputError. top_log_probs: also those of so many most probable tokens in the place of each token.
        """
        options: GenerationOptions = {"special_tokens": special_tokens, "top_log_probs": top_log_probs}
        call = self._resolver.call(options | {"return_log_probs": True}, details=True)
        is_single = is_one_prompt(texts)
        ids_B = self._reader.ids(self._reader.check([texts] if is_single else check_several("texts", texts)), call)
        for number, ids in enumerate(ids_B):
            if self._context and len(ids) > self._context:
                raise InputError(f"text {number} has {len(ids)} tokens, the model's context {self._context}")
        scores: list[TextScore] = self._service.scheduler().run(partial(self._plan_scores, ids_B, top_log_probs))
        return scores[0] if is_single else scores

    def _scheduler_and_plan(
        self, prompts: Any, details: bool, options: GenerationOptions, is_submitted: bool = False
    ) -> tuple[Scheduler, Callable[[], Plan]]:
        """(scheduler, function that makes the plan) of a call, after a check of the call's arguments.

        is_submitted  whether the plan turns the prompts into ids, which takes a while; False: this call does
        """
        prompts, options = self._conversations.render(prompts, options)
        call = self._resolver.call(options, details)
        is_single = is_one_prompt(prompts)
        prompt_list = self._reader.check([prompts] if is_single else check_several("prompts", prompts))
        ids_B = None if is_submitted else self._reader.read(prompt_list, call)

        def make_plan() -> Plan:
            results = without_errors(
                (yield from self._plan(self._reader.read(prompt_list, call) if ids_B is None else ids_B, call=call))
            )
            return results[0] if is_single else results

        return self._service.scheduler(call.decoding), make_plan

    def _plan(self, prompts: Sequence[Any], first: int = 0, *, call: GenerationCall) -> Plan:
        """A plan of the answer to each prompt, or its error; ``first``: the first prompt's number, for the callback."""
        readable = [b for b, ids in enumerate(prompts) if not isinstance(ids, FastattnError)]
        options, answers = call.decoding, {b: AnswerText(self._tokenizer, prompts[b], call.stop) for b in readable}
        if options.callback is not None:
            options = replace(options, callback=self._with_texts(options.callback, [first + b for b in readable]))
        allowance_of = allowances(readable, options)
        jobs = [self._job(prompts[b], options, call, answers[b], allowance_of.get(b)) for b in readable]
        hypotheses_of = yield from search_plan(jobs, self._service.model.sizes)
        results: list[Any] = list(prompts)
        for b, job, hypotheses in zip(readable, jobs, hypotheses_of):
            if not hypotheses:
                results[b] = timeout_error(options)
            elif call.details:
                best, *alternatives = [self._generation(job, hypothesis, answers[b]) for hypothesis in hypotheses]
                results[b] = replace(best, alternatives=tuple(alternatives))
            else:
                results[b] = self._generation(job, hypotheses[0], answers[b]).text
        return results

    def _plan_scores(self, texts: Sequence[np.ndarray], count: int) -> Plan:
        """A plan of the TextScore of each text."""
        options = self._resolver.default
        scorable = [b for b, ids in enumerate(texts) if len(ids) > 1]
        job = Job(NO_SOURCE, (), options=options, only_scores=True, top_count=count)
        scores_of = dict(zip(scorable, (yield [replace(job, start=texts[b].tolist()) for b in scorable])))
        return [TextScore(ids.tolist(), *scores_of.get(b, (np.zeros(0, np.float32),))) for b, ids in enumerate(texts)]

    def _job(self, ids: np.ndarray, options: DecodingOptions, call: GenerationCall, answer: Any, allowance: Any) -> Job:
        room = self._context - len(ids)
        if self._context and options.limit(0, 0) > room:
            min_length = min(options.min_decoding_length, room)
            options = replace(options, max_decoding_length=room, min_decoding_length=min_length)
        return Job(
            NO_SOURCE,
            ids.tolist(),
            options=options,
            constraint=call.constraint,
            penalizes_start=True,
            stop=answer.stop,
            with_log_probs=call.return_log_probs,
            top_count=call.top_log_probs,
            speculate=call.speculate,
            allowance=allowance,
        )

    def _generation(self, job: Job, hypothesis: Hypothesis, answer: AnswerText) -> Generation:
        tokens, limit = hypothesis.tokens.tolist(), job.options.limit(0, 0)
        reason = "length" if len(tokens) >= limit else "stop"
        if tokens and tokens[-1] in job.options.end_token:
            tokens, reason = tokens[:-1], "stop"
        text, is_cut = answer.text(tokens)
        log_probs = None if hypothesis.log_probs is None else hypothesis.log_probs[: len(tokens)]
        reason, tops = "stop" if is_cut else reason, hypothesis.top_log_probs[: len(tokens)]
        counts = hypothesis.proposed, hypothesis.accepted, hypothesis.cached_tokens
        return Generation(text, tokens, hypothesis.score, reason, len(job.start), log_probs, (), *counts, tops)

    def _with_texts(self, callback: Callable[[Step], Any], numbers: Sequence[int]) -> Callable[[Step], Any]:
        """A callback for the decoder: replaces a job's number by the prompt's of ``numbers``, and adds the token."""
        token_of = self._tokenizer.token
        return lambda step: callback(
            replace(step, sentence=numbers[step.sentence], token=token_of(step.token_id) or "")
        )

    def _stream(self, ids: np.ndarray, call: GenerationCall, caller: Hashable) -> Iterator[str]:
        steps = SimpleQueue[Step | None]()
        running_answer = self._begin_answer(ids, call, caller, steps.put)
        try:
            while (step := steps.get()) is not None:
                if piece := running_answer.piece(step):
                    yield piece
            if piece := running_answer.end():
                yield piece
        finally:
            running_answer.request.cancel()

    def _begin_answer(
        self, ids: np.ndarray, call: GenerationCall, caller: Hashable, put: Callable[[Step | None], Any]
    ) -> RunningAnswer:
        """An answer that other threads compute. They call ``put`` with each step, and with None behind the last."""
        answer, options = AnswerText(self._tokenizer, ids, call.stop), replace(call.decoding, callback=put)
        job = self._job(ids, options, call, answer, allowances([0], options).get(0))
        request = self._service.scheduler().submit(partial(search_plan, [job], self._service.model.sizes), caller)
        request.add_done_callback(lambda _: put(None))
        return RunningAnswer(job, answer, request)
