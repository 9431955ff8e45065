"""The prompts of language models' training to translate, and how a checkpoint's prompt is found."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastattn.errors import InputError
from fastattn.system.records import dataclass
from fastattn.text.languages import Language


@dataclass(frozen=True)
class TrainedPrompt:
    """The prompt of one family of models. {source} and {target} are languages, {text} the text to translate.

    form         the prompt
    chinese      the prompt where the source or the target is Chinese; languages' names are then Chinese too
    terms        the prompt with terms, {terms}: a line of ``term`` each
    context      the prompt with the text before this one, {context}
    is_chat      whether the prompt is a message for the chat template; else the model continues it
    hints        a pattern that names of such models match: of the folder or file, or in the config
    structured   a word in chat templates that take the text and the languages as they are
    stops        texts that end an answer, for a model that would go on
    source       where the form is from
    """

    form: str
    source: str
    hints: str
    chinese: str = ""
    terms: str = ""
    term: str = ""
    context: str = ""
    is_chat: bool = True
    structured: str = ""
    stops: tuple[str, ...] = ()


_HY_CHINESE = "将以下文本翻译为{target}，注意只需要输出翻译后的结果，不要额外解释：\n\n{text}"
_HY: dict[str, Any] = {
    "chinese": _HY_CHINESE,
    "terms": "参考下面的翻译：\n{terms}\n\n" + _HY_CHINESE.replace("\n\n", "\n"),
    "term": "{0} 翻译成 {1}",
    "context": "{context}\n参考上面的信息，把下面的文本翻译成{target}，注意不需要翻译上文，也不要额外解释：\n{text}",
}
_COMPLETION = "Translate this from {source} to {target}:\n{source}: {text}\n{target}:"

PROMPTS = {
    # Terms and context have Chinese forms alone; other languages are named in Chinese there, as the cards have it.
    "hy-mt2": TrainedPrompt(
        "Translate the following text into {target}. Note that you should only output the translated result without "
        "any additional explanation:\n\n{text}",
        source="users of Hy-MT2 who quote its card; its Chinese form, terms and context are taken to be those of 1.5",
        hints=r"hy-?mt-?2",
        **_HY,
    ),
    "hy-mt": TrainedPrompt(
        "Translate the following segment into {target}, without additional explanation.\n\n{text}",
        source="users of HY-MT1.5 who quote its card",
        hints=r"hy-?mt|hunyuan_v1_dense",
        **_HY,
    ),
    "hunyuan-mt": TrainedPrompt(
        "Translate the following segment into {target}, without additional explanation.\n\n{text}",
        source="the card of Hunyuan-MT-7B; no terms, no context",
        hints=r"hunyuan-?mt",
        chinese="把下面的文本翻译成{target}，不要额外解释。\n\n{text}",
    ),
    "translategemma": TrainedPrompt(
        "You are a professional {source} ({source_code}) to {target} ({target_code}) translator. Your goal is to "
        "accurately convey the meaning and nuances of the original {source} text while adhering to {target} grammar, "
        "vocabulary, and cultural sensitivities.\nProduce only the {target} translation, without any additional "
        "explanations or commentary. Please translate the following {source} text into {target}:\n\n\n{text}",
        source="the page of TranslateGemma in a registry of models; its own template writes this itself",
        hints=r"translate-?gemma",
        structured="source_lang_code",
    ),
    "milmmt": TrainedPrompt(
        _COMPLETION,
        source="the card of MiLMMT-46, and of GemmaX2 before it; without its last line the model echoes",
        hints=r"milmmt|gemmax2",
        is_chat=False,
        stops=("\nTranslate this from",),
    ),
    "alma": TrainedPrompt(
        _COMPLETION,
        source="the card of ALMA; X-ALMA has the same as a message",
        hints=r"(?<!x-)\balma\b",
        is_chat=False,
        stops=("\nTranslate this from",),
    ),
    "x-alma": TrainedPrompt(_COMPLETION, source="the card of X-ALMA", hints=r"x-alma"),
    "tower": TrainedPrompt(
        "Translate the following text from {source} into {target}.\n{source}: {text}\n{target}:",
        source="the card of TowerInstruct",
        hints=r"tower",
    ),
    "eurollm": TrainedPrompt(
        "Translate the following {source} source text to {target}:\n{source}: {text}\n{target}: ",
        source="the card of EuroLLM-1.7B-Instruct; that of 9B names no prompt for translation, and has this here too",
        hints=r"eurollm",
    ),
}


def recognize_prompt(names: Sequence[str], chat_template: str) -> str:
    """The prompt for a checkpoint, by its names and its chat template; InputError that lists all, if none fits."""
    for name, prompt in PROMPTS.items():
        if prompt.structured and prompt.structured in chat_template:
            return name
    for model_name in names:
        for name, prompt in PROMPTS.items():
            if re.search(prompt.hints, model_name.lower()):
                return name
    raise InputError(f"not known with which prompt this model translates; name one: {', '.join(PROMPTS)}")


class TranslationPrompt:
    """One family's prompt between two languages.

    terms    a dict from terms to their translations; context: the text before these texts
    Raises InputError where the family was not trained with terms or context, or for both at once.
    """

    def __init__(
        self, name: str, source: Language, target: Language, terms: Mapping[str, str] | None = None, context: str = ""
    ):
        self.prompt, self._source, self._target = PROMPTS[name], source, target
        if terms and context:
            raise InputError("a model takes terms or context, not both at once")
        for value, form, kind in ((terms, self.prompt.terms, "terms"), (context, self.prompt.context, "context")):
            if value and not form:
                raise InputError(f"models with the prompt {name} were not trained with {kind}")
        form = self.prompt.terms if terms else self.prompt.context if context else ""
        is_chinese = bool(form) or bool(self.prompt.chinese) and (source.is_chinese or target.is_chinese)
        self._form = form or (self.prompt.chinese if is_chinese else self.prompt.form)
        self._named = {
            "source": source.chinese if is_chinese else source.name,
            "target": target.chinese if is_chinese else target.name,
            "source_code": source.code,
            "target_code": target.code,
            "terms": "\n".join(self.prompt.term.format(*pair) for pair in (terms or {}).items()),
            "context": context,
        }

    @property
    def instruction(self) -> str:
        """The longest line around the text, by which an answer that repeats the prompt is found."""
        lines = self._form.format(**self._named, text="\n").split("\n")
        return max(lines, key=len)

    def render(self, text: str, chat_template: str) -> str | list[dict[str, Any]]:
        """The prompt for a text, or the messages for the chat template."""
        if self.prompt.structured and self.prompt.structured in chat_template:
            codes = {"source_lang_code": self._source.code, "target_lang_code": self._target.code}
            return [{"role": "user", "content": [{"type": "text", **codes, "text": text}]}]
        filled = self._form.format(**self._named, text=text)
        return [{"role": "user", "content": filled}] if self.prompt.is_chat else filled
