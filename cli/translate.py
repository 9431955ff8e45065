"""``fastattn translate``: reads lines and writes their translations, in order, each as soon as it is finished."""

import hashlib
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from fastattn._version import VERSION
from fastattn.cli.documents import plan_documents, translate_documents
from fastattn.cli.lines import InputLine, InputLines, open_lines, open_output, print_report, progress_text
from fastattn.cli.options import Command, announce_default, declare, find_entry, find_model, pause_gc, without_none
from fastattn.cli.printing import Compilation, Progress, as_json, say
from fastattn.cli.search_options import options_as_typed, search_options
from fastattn.documents.forms import EXTRAS, FORMS
from fastattn.errors import FastattnError, InputError, WrongModelError
from fastattn.printable import counted
from fastattn.system.files import OutputFile, one_line
from fastattn.weights.download import models_between

Options = dict[str, Any]
# Options whose translators are put around the model's translator: terms, loops, memories, a cache.
WRAPPER_OPTIONS = ("glossary", "keep", "keep_placeholders", "guard", "capitals", "memory", "cache")

wrapper_options = declare("""
--glossary FILE: Terms and their translations, two columns with a tab between them, or TBX: they come out as it says.
--keep PATTERN ...: What this regular expression finds stays as it is. May be given several times.
--keep-placeholders: Addresses, code, and what programs replace, such as {name} or %s, stay as they are, as they do in
    documents.
--guard/--no-guard: Decode loops and what has run away again, without repetitions, and say so (default: of documents).
--capitals/--no-capitals: Translate a text in capitals in small letters where the model fails on it, and set it in
    capitals again (default: of documents).
--memory FILE: A translation memory (TMX, or two columns with a tab): texts that it has get its translations; --json
    shows what is like them.
--cache FILE: Take from FILE what was translated before, and keep there what is new.
""")


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  fastattn translate "Hello world"
  fastattn translate --from pt --to en < portuguese.txt
  fastattn translate -m zh-en "我们明天去北京开会。"
  fastattn translate -m zh-en -i chinese.txt -o translated.txt -v
  zcat big.gz | fastattn translate -m zh-en --beam-size 1 | head
  fastattn translate -m zh-en --beam-size 5 -n 5 --scores "你好"
  fastattn translate -m zh-en -b 1 --sampling-topk 10 --seed 7 -n 3 "你好"
  fastattn translate --from de --to fr "Guten Morgen"
  fastattn translate -m zh-en -m en-pt "你好"
  fastattn translate --from auto --to pt < english.txt
  fastattn translate -m zh-en --alignments "你好"
  fastattn translate -m zh-en --show-attention look.html "你好"
  fastattn translate -m en-pt --keep "Acme [A-Z]+" --glossary a.tsv < in.txt
  fastattn translate -m en-pt --memory old.tmx --cache done.db --json < in.txt
  fastattn translate --from en --to pt -i page.html -o pagina.html
  fastattn translate --from en --to pt -i site/ --out-dir site-pt
  fastattn translate --from en --to pt -i table.csv --fields text,3
  fastattn translate -m ./my-model --json < input.txt
  fastattn translate -m ./my-nllb --from English --to ckb "Hello"
  fastattn translate -m ./my-llm --from zh --to en --prompt hy-mt "你好"

\b
Without --json an input line gives an output line; an empty one stays empty.
  --scores  puts the score and a tab before the text
  -n 2 ...  gives a line for each hypothesis, with the number of its input
            line and a tab before it
  --json    gives null for a score that is not finite, which only damaged
            weights lead to

\b
Through a pipe, a FIFO or a terminal, a line is answered before the next one
comes. With --on-error skip or mark a line that fails keeps its place in the
output, so that input and output stay aligned:
  skip      an empty line; with --json one without hypotheses
  mark      [not translated: REASON]; with --json "error" beside the rest
Such lines are counted on stderr at the end, and the exit code is 5.

\b
--from auto finds the language of each line (fastattn[detect]) and the model
from it; lines in --to's stay. Those whose language is unsure are counted on
stderr at the end; --json says in "detected" what was found, and how probable.

\b
-m with --from and --to is a model of many languages (NLLB, M2M100, MADLAD),
which takes codes in any usual form (en, eng_Latn, en_XX) and English names;
fastattn inspect shows some. Or it is a language model that was trained to
translate. Its answers that are no translations, as far as simple rules tell,
are counted on stderr at the end; --json says in "remarks" what speaks against
each: empty, echo, prompt, explanation, paragraphs, quotes, script, cut.

\b
The time of a line depends on its length (long lines are split into parts),
the most tokens of each part's translation (--max-length) and the beam;
--timeout limits it.
""",
)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@declare(
    f"""
-m, --model MODEL ... -> models: A name that `fastattn pull` lists, a pair such as de-en, a folder, or OWNER/NAME on the
    Hugging Face hub; a second one translates what the first makes.
--from LANGUAGE -> source: Language of the texts, a code such as en: chooses models, or is one of -m's; auto: each
    line's own.
--to LANGUAGE -> target: Language to translate to, likewise (default, without both: from en to pt).
--quality
--prompt NAME: The prompt that a language model was trained with: hy-mt2, hy-mt, hunyuan-mt, translategemma, milmmt,
    alma, x-alma, tower or eurollm (default: by the model's names).
--input
--output
--json -> as_json: Write one JSON object a line: "source", "translation", "hypotheses": [{{"text", "score"}}].
--format FORM -> form: The form of the document: {", ".join(FORMS)} (default: as the end of its name says; without a
    file, lines of text).
--fields NAME,...: Which fields of a table or of JSON lines are translated: names, inner ones as a.b, or numbers of
    columns.
--extra [{"|".join(EXTRAS)}] ... -> extras: Translate too comments of docx and odt, or title and description of
    Markdown's front matter. May be given several times.
--mark-fuzzy: Mark translations in po, xliff and xcstrings as to be reviewed.
--out-dir FOLDER: Translate all documents of the folder that -i names into FOLDER, those that are there already left
    out.
-n, --num-hypotheses INTEGER: How many translations of each line, best first (default: 1).
--scores: Write each translation's score before it.
--split
--alignments: Write which words look at which behind each translation, as 0-0 1-2 (Pharaoh's form); --json too.
--show-attention FILE: Draw what the decoder's layers and heads look at, of one TEXT: a page (.html), a picture (.svg),
    or lines behind the translation ('-').
""",
    form={"type": click.Choice(FORMS)},
)
@wrapper_options
@declare(
    """
--on-error
--precision [float32|bfloat16|int8|intgemm|int4|auto]
--cache-precision
--threads
--device
--processes
--verbose
""",
    on_error={"default": "stop"},
)
@search_options
def translate(
    texts: tuple[str, ...],
    models: tuple[str, ...],
    source: str | None,
    target: str | None,
    quality: str | None,
    prompt: str | None,
    as_json: bool,
    scores: bool,
    on_error: str,
    verbose: bool,
    **options: Any,
) -> None:
    """Translate TEXTs, the lines of a file, or standard input.

    -m names the model; --from and --to choose one, or two by way of English, from the catalog and Firefox's, or
    languages of -m's. The default is en-pt, English to Portuguese.
    """
    for option, value in (("--prompt", prompt), ("--cache-precision", options["cache_precision"])):
        if value is not None and (len(models) != 1 or source is None or target is None):
            raise click.UsageError(f"{option} is for a language model: give --model, --from and --to")
    if len(models) > 2:
        raise click.UsageError("--model names one model or two")
    if quality is not None and (models or source is None or target is None):
        raise click.UsageError("--quality is for --from and --to, without --model")
    if source == AUTO and (models or target is None):
        raise click.UsageError("--from auto finds models itself: give --to, and no --model")
    entries = [] if models or source == AUTO else models_between(source, target, quality)
    if not models and source is None and target is None:
        announce_default(entries[0].name, "--from, --to or -m choose another")
    input_path, output_path, out_dir = options.pop("input_path"), options.pop("output_path"), options.pop("out_dir")
    form, fields = options.pop("form"), (options.pop("fields") or "").split(",")
    mark_fuzzy = options.pop("mark_fuzzy")
    extras, language = options.pop("extras"), target or (entries[-1].name.rpartition("-")[2] if entries else None)
    wrappers, alignments = {name: options.pop(name) for name in WRAPPER_OPTIONS}, options.pop("alignments")
    plot_path = options.pop("show_attention")
    if plot_path is not None:
        if plot_path != "-" and not plot_path.lower().endswith((".html", ".svg")):
            raise click.UsageError(f"--show-attention wants a name that ends in .html or .svg, or '-', not {plot_path}")
        if len(texts) != 1 or len(models) > 1 or source == AUTO or any(wrappers.values()):
            raise click.UsageError("--show-attention is for one TEXT and one model, without what stands around it")
    as_lines = alignments or as_json or scores or (options["num_hypotheses"] or 1) > 1 or bool(texts)
    names = models or tuple(entry.name for entry in entries)
    key_options = {name: value for name, value in options.items() if name not in ("threads", "processes")}
    work = (names, source, target, quality, prompt, key_options, wrappers, file_digests(wrappers), fields, extras)
    key = repr((*work, mark_fuzzy))
    documents = plan_documents(input_path, output_path, out_dir, form, as_lines, key, any(fields))
    if documents is None and fields != [""]:
        raise click.UsageError("--fields is for csv, tsv and jsonl")
    if documents is None and (extras or mark_fuzzy):
        raise click.UsageError(f"{'--extra' if extras else '--mark-fuzzy'} is for documents")
    wrappers["documents"] = documents is not None
    lines = open_lines(texts, input_path, on_error) if documents is None else None
    with open_output(output_path) as output, Progress() as progress:
        start = time.monotonic()
        with pause_gc():
            compilation = Compilation(progress)
            progress.show(f"loading {' and '.join([*models, *(entry.name for entry in entries)])}")
            paths = [find_entry(entry, progress) for entry in entries]
            paths = paths or [find_model(name, progress) for name in models]
            setting_names = ("precision", "cache_precision", "threads", "device", "processes")
            settings = without_none(**{name: options.pop(name) for name in setting_names})
            languages = without_none(source_lang=source, target_lang=target) if models else {}
            if source == AUTO:
                search = without_none(**options) | DETAILS
                translator = _open_detecting_translator(target, quality, settings, search, progress, wrappers)
            else:
                pair = _language_pair(names, source, target)
                search = without_none(**options)
                translator, search = _open_translator(paths, languages, prompt, settings, search, wrappers, pair)
            search |= {"return_attention": True} if alignments else {}
            if "return_scores" in search:  # greedy search is faster without scores
                search["return_scores"] = scores or as_json
        if source != AUTO:
            _check_options(translator, search)
        load_end = time.monotonic()
        progress.enabled &= not output.is_terminal()
        if lines is None:
            search.pop("details", None)
            call = output, tuple(filter(None, fields)), on_error == "stop", progress
            files = translate_documents(
                translator, documents or [], *call, extras=extras, language=language, mark_fuzzy=mark_fuzzy, **search
            )
            if verbose:
                say(f"{files} in {time.monotonic() - load_end:.2f} s (loaded in {load_end - start:.2f} s)", err=True)
            return
        writer = ResultWriter(output, as_json, scores, options["num_hypotheses"] or 1, on_error == "mark", languages)
        writer.alignments = alignments
        for line, result in _results(translator, lines, search, progress, load_end):
            writer.write(line, result)
            if plot_path is not None and line.error is None:
                _draw(translator, plot_path, line.text, result.text, languages, output)
    if verbose:
        print_report(lines, start, load_end, compilation)
    total = counted(writer.lines, "line")
    if writer.remarked_lines:
        warning = f"{writer.remarked_lines} of {total} may be no translation"
        say(f"fastattn: {warning}, the first: {writer.first_remark}", err=True)
    if writer.unsure_lines:
        warning = f"the language of {writer.unsure_lines} of {total} is unsure"
        say(f"fastattn: {warning}, the first: {writer.first_unsure}", err=True)
    lines.check("translated")


def _draw(translator: Any, path: str, text: str, translation: str, languages: Options, output: OutputFile) -> None:
    """Draw the attention weights of the model over a text while it writes the translation; path "-": as lines."""
    if not hasattr(translator, "looks"):
        raise InputError("--show-attention is for an encoder-decoder model")
    plot = translator.looks(text, translation, **languages).plot()
    if path == "-":
        output.write(f"{plot.to_text()}\n".encode("utf-8", "surrogatepass"))
    else:
        plot.save(path)


AUTO = "auto"
DETAILS = {"details": True, "return_scores": False}
# Options of a search that a Generator knows by other names, since there they count an answer's tokens.
_GENERATION_NAMES = {"max_decoding_length": "max_new_tokens", "min_decoding_length": "min_new_tokens"}


def _language_pair(names: Sequence[str], source: str | None, target: str | None) -> tuple[str, str]:
    """(source, target) language by the options, else by the names of the first and the last model; "" if unknown."""
    first, last = (re.fullmatch(r"([a-z]{2,3})-([a-z]{2,3})", name) for name in (names[0], names[-1]))
    return source or (first[1] if first else ""), target or (last[2] if last else "")


def _open_translator(
    paths: list[str],
    languages: Options,
    prompt: str | None,
    settings: Options,
    search: Options,
    wrappers: Options,
    pair: tuple[str, str],
) -> tuple[Any, Options]:
    """(translator, options of its calls): a Translator, a chain of two, or a LanguageModelTranslator for two languages.

    wrappers, pair  options and languages for ``add_wrappers``
    """
    if prompt is None and "cache_precision" not in settings:
        from fastattn.text.sentencepiece import start_early

        for path in paths:
            start_early(Path(path))
        from fastattn.translation.translator import Translator  # takes as long as a sentencepiece model to load

        try:
            translators = [Translator(path, **settings) for path in paths]
            translator = translators[0] if len(translators) == 1 else Translator.chain(*translators)
            return add_wrappers(translator, paths, settings | languages, wrappers, pair), search | languages | DETAILS
        except WrongModelError:
            if len(languages) < 2 or len(paths) > 1:
                raise
    from fastattn.generation.language_model_translator import LanguageModelTranslator

    if "processes" in settings:
        raise click.UsageError("a language model translates in this process alone: leave out --processes")
    if any(wrappers[name] for name in WRAPPER_OPTIONS):
        names = "--glossary, --keep, --keep-placeholders, --guard, --capitals, --memory or --cache"
        raise click.UsageError(f"a language model has no {names}")
    options = {_GENERATION_NAMES.get(name, name): value for name, value in search.items()} | {"details": True}
    return LanguageModelTranslator(paths[0], **languages, prompt=prompt, **settings), options


def _open_detecting_translator(
    target: str | None, quality: str | None, settings: Options, search: Options, progress: Progress, wrappers: Options
) -> Any:
    """A translator from any language, which opens a language's models when the language first occurs."""
    from fastattn.text.languages import iso_code
    from fastattn.translation.detecting import DetectingTranslator

    def open_from(code: str) -> Any:
        paths = [find_entry(model, progress) for model in models_between(code, target, quality)]
        translator = _open_translator(paths, {}, None, settings, {}, wrappers, (code, target or ""))[0]
        try:
            _check_options(translator, search)
        except InputError as error:
            raise click.UsageError(str(error)) from None  # the options are wrong, not the text
        return translator

    return DetectingTranslator(iso_code(target or ""), open_from)


def _check_options(translator: Any, search: dict[str, Any]) -> None:
    """Check the options before any text is read. Before a timeout begins, the kernels are compiled too."""
    with options_as_typed():
        translator.translate_iter((), **search)
    if "timeout" in search:
        translator.translate("a", **search | {"timeout": None})


def _results(
    translator: Any, lines: InputLines, options: dict, progress: Progress, start: float
) -> Iterator[tuple[InputLine, Any]]:
    """(line, result) for each line, in order. Only the lines that the translator reads ahead are in memory."""
    for burst in lines.bursts():
        for result in translator.translate_iter(burst, return_exceptions=True, **options):
            line = lines.finish(result if isinstance(result, FastattnError) else None)
            progress.show(progress_text(lines, time.monotonic() - start))
            yield line, result


def add_wrappers(
    translator: Any, paths: list[str], settings: dict[str, Any], options: dict[str, Any], languages: tuple[str, str]
) -> Any:
    """Put a translator inside translators for terms, loops, a memory and a cache, as the options say.

    paths, settings  the models' folders and options, which identify cached translations
    options          WRAPPER_OPTIONS, and "documents": whether the texts are documents', which have a guard by default
    languages        (source, target), "" if unknown
    """
    guards, has_capitals = (
        options["documents"] if options[name] is None else options[name] for name in ("guard", "capitals")
    )
    if not (guards or has_capitals or any(options[name] for name in WRAPPER_OPTIONS)):
        return translator
    from fastattn.translation.capitals import CapitalsTranslator
    from fastattn.translation.glossary import GlossaryTranslator
    from fastattn.translation.guarded import GuardedTranslator
    from fastattn.translation.memory import CachedTranslator, MemoryTranslator
    from fastattn.translation.term_files import read_glossary, read_memory

    if options["glossary"] or options["keep"] or options["keep_placeholders"]:
        terms = read_glossary(options["glossary"], *languages) if options["glossary"] else {}
        translator = GlossaryTranslator(translator, terms, options["keep"], options["keep_placeholders"])
    if guards:
        translator = GuardedTranslator(translator)
    if has_capitals:
        translator = CapitalsTranslator(translator)
    if options["memory"]:
        translator = MemoryTranslator(translator, read_memory(options["memory"], *languages))
    if options["cache"]:
        switches = [options["keep"], options["keep_placeholders"], guards, has_capitals]
        identity = [VERSION, *map(_digest, paths), file_digests(options), *switches, settings]
        translator = CachedTranslator(translator, options["cache"], repr(identity))
    return translator


def file_digests(options: dict[str, Any]) -> list[Any]:
    """Digests of the glossary and of the memory; False in place of a missing file's, None without the option."""
    paths = (options["glossary"], options["memory"])
    return [path and os.path.isfile(path) and _digest(path) for path in paths]


def _digest(path: str) -> str:
    """A digest of the names, sizes and times of a file or of all files in a folder."""
    digest = hashlib.sha256()
    for root, folders, files in os.walk(path) if os.path.isdir(path) else [(os.path.dirname(path), [], [path])]:
        folders.sort()
        for name in sorted(files):
            status = os.stat(os.path.join(root, name))
            digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _alignment_text(line: InputLine, result: Any) -> str:
    from fastattn.translation.alignment import pharaoh, word_links

    return pharaoh(line.text, result.text, word_links(line.text, result))


class ResultWriter:
    """Writes results one by one, as text or as JSON lines, and flushes after each.

    with_reasons  whether to write the reason in place of a line that failed
    languages     the languages of the options, for JSON
    """

    def __init__(
        self, output: OutputFile, as_json: bool, scores: bool, hypotheses: int, with_reasons: bool, languages: Options
    ):
        self.lines = self.remarked_lines = self.unsure_lines = 0
        self.first_remark = self.first_unsure = ""  # the first remarks, the first unsure language, each with the line
        self._output, self._as_json, self._scores, self._has_numbers = output, as_json, scores, hypotheses > 1
        self._with_reasons, self._languages = with_reasons, languages
        self.alignments = False  # whether word alignments are written too

    def write(self, line: InputLine, result: Any) -> None:
        self.lines += 1
        if getattr(result, "language", "") and not result.sure:  # a detected language
            self.first_unsure = self.first_unsure or f"{line.location}: {result.language} ({result.confidence:.0%})"
            self.unsure_lines += 1
        if remarks := getattr(result, "remarks", ()):
            self.first_remark = self.first_remark or f"{line.location}: {', '.join(remarks)}"
            self.remarked_lines += 1
        if self._as_json:
            text = as_json(self._record(line, result), allow_nan=False)
        elif line.error is not None:
            text = self._text_line(f"[not translated: {line.error}]" if self._with_reasons else "", math.nan)
        else:
            text = "\n".join(map(self._text_line, result.hypotheses, result.scores))
            text += f" ||| {_alignment_text(line, result)}" if self.alignments else ""
        self._output.write((text + "\n").encode("utf-8", "surrogatepass"))
        self._output.flush()

    def _record(self, line: InputLine, result: Any) -> dict[str, Any]:
        if line.error is not None:
            reason = {"error": str(line.error)} if self._with_reasons else {}
            return {"source": line.text, "translation": "", "hypotheses": []} | reason
        hypotheses = [
            {"text": text, "score": score if math.isfinite(score) else None}
            for text, score in zip(result.hypotheses, result.scores)
        ]
        details: dict[str, Any] = {"remarks": list(result.remarks)} if hasattr(result, "remarks") else {}
        details |= {"through": result.through[0]} if getattr(result, "through", None) else {}
        if self.alignments:
            details["alignment"] = _alignment_text(line, result)
        if hasattr(result, "exact"):
            details["memory"] = "exact" if result.exact else [match._asdict() for match in result.near]
        if hasattr(result, "language"):
            details["detected"] = {"language": result.language, "confidence": round(result.confidence, 3)}
        return {"source": line.text, "translation": result.text, "hypotheses": hypotheses} | self._languages | details

    def _text_line(self, hypothesis: str, score: float) -> str:
        text = (f"{score:.6f}\t" if self._scores else "") + one_line(hypothesis)
        return f"{self.lines}\t{text}" if self._has_numbers else text
