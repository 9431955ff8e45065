"""Prompts with which language models were trained to translate, and how a checkpoint's prompt is found."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastattn.errors import InputError
from fastattn.system.records import dataclass
from fastattn.text.languages import Language


@dataclass(frozen=True)
class TrainedPrompt:
    """The prompt of one family of models. {source} and {target} are languages, {text} the text to translate.

    template          the prompt
    origin            where the template is from
    name_pattern      matches names of such models: of the folder or file, or in the config
    chinese_template  the prompt where the source or the target is Chinese; languages' names are then Chinese too
    terms_template    the prompt with terms, {terms}: a line of ``term_template`` for each term
    context_template  the prompt with the text before this text, {context}
    is_chat           whether the prompt is a message for the chat template; else the model continues the prompt
    chat_word         a word in chat templates that write this prompt themselves, from the text and the languages
    stops             stop strings, for a model that would go on behind its translation
    """

    template: str
    origin: str
    name_pattern: str
    chinese_template: str = ""
    terms_template: str = ""
    term_template: str = ""
    context_template: str = ""
    is_chat: bool = True
    chat_word: str = ""
    stops: tuple[str, ...] = ()


_HY_CHINESE = "将以下文本翻译为{target}，注意只需要输出翻译后的结果，不要额外解释：\n\n{text}"
_HY: dict[str, Any] = {
    "chinese_template": _HY_CHINESE,
    "terms_template": "参考下面的翻译：\n{terms}\n\n" + _HY_CHINESE.replace("\n\n", "\n"),
    "term_template": "{0} 翻译成 {1}",
    "context_template": "{context}\n参考上面的信息，把下面的文本翻译成{target}，"
    "注意不需要翻译上文，也不要额外解释：\n{text}",
}
_COMPLETION = "Translate this from {source} to {target}:\n{source}: {text}\n{target}:"

PROMPTS = {
    # The templates with terms or context exist in Chinese only. They name languages in Chinese, as the cards do.
    "hy-mt2": TrainedPrompt(
        "Translate the following text into {target}. Note that you should only output the translated result without "
        "any additional explanation:\n\n{text}",
        origin="users of Hy-MT2 who quote its card; the templates in Chinese are taken to be those of 1.5",
        name_pattern=r"hy-?mt-?2",
        **_HY,
    ),
    "hy-mt": TrainedPrompt(
        "Translate the following segment into {target}, without additional explanation.\n\n{text}",
        origin="users of HY-MT1.5 who quote its card",
        name_pattern=r"hy-?mt|hunyuan_v1_dense",
        **_HY,
    ),
    "hunyuan-mt": TrainedPrompt(
        "Translate the following segment into {target}, without additional explanation.\n\n{text}",
        origin="the card of Hunyuan-MT-7B; no terms, no context",
        name_pattern=r"hunyuan-?mt",
        chinese_template="把下面的文本翻译成{target}，不要额外解释。\n\n{text}",
    ),
    "translategemma": TrainedPrompt(
        "You are a professional {source} ({source_code}) to {target} ({target_code}) translator. Your goal is to "
        "accurately convey the meaning and nuances of the original {source} text while adhering to {target} grammar, "
        "vocabulary, and cultural sensitivities.\nProduce only the {target} translation, without any additional "
        "explanations or commentary. Please translate the following {source} text into {target}:\n\n\n{text}",
        origin="the page of TranslateGemma in a registry of models; its chat template writes the same",
        name_pattern=r"translate-?gemma",
        chat_word="source_lang_code",
    ),
    "milmmt": TrainedPrompt(
        _COMPLETION,
        origin="the cards of GemmaX2 and MiLMMT-46; without the prompt's last line the model echoes the text",
        name_pattern=r"milmmt|gemmax2",
        is_chat=False,
        stops=("\nTranslate this from",),
    ),
    "alma": TrainedPrompt(
        _COMPLETION,
        origin="the card of ALMA; X-ALMA has the same prompt as a message",
        name_pattern=r"(?<!x-)\balma\b",
        is_chat=False,
        stops=("\nTranslate this from",),
    ),
    "x-alma": TrainedPrompt(_COMPLETION, origin="the card of X-ALMA", name_pattern=r"x-alma"),
    "tower": TrainedPrompt(
        "Translate the following text from {source} into {target}.\n{source}: {text}\n{target}:",
        origin="the card of TowerInstruct",
        name_pattern=r"tower",
    ),
    "eurollm": TrainedPrompt(
        "Translate the following {source} source text to {target}:\n{source}: {text}\n{target}: ",
        origin="the card of EuroLLM-1.7B-Instruct; the card of 9B names no prompt, and 9B gets the same here",
        name_pattern=r"eurollm",
    ),
}


def recognize_prompt(names: Sequence[str], chat_template: str) -> str:
    """The name of a checkpoint's prompt, by the chat template or the checkpoint's ``names``; InputError if unknown."""
    for name, prompt in PROMPTS.items():
        if prompt.chat_word and prompt.chat_word in chat_template:
            return name
    for model_name in names:
        for name, prompt in PROMPTS.items():
            if re.search(prompt.name_pattern, model_name.lower()):
                return name
    raise InputError(f"not known with which prompt this model translates; name one: {', '.join(PROMPTS)}")


class TranslationPrompt:
    """One family's prompt between two languages.

    terms    a dict from terms to their translations; context: the text before these texts
    Raises InputError for terms or context that the family was not trained with, and for both at once.
    """

    def __init__(
        self, name: str, source: Language, target: Language, terms: Mapping[str, str] | None = None, context: str = ""
    ):
        self.prompt, self._source, self._target = PROMPTS[name], source, target
        if terms and context:
            raise InputError("a model takes terms or context, not both at once")
        prompt = self.prompt
        template = prompt.terms_template if terms else prompt.context_template if context else ""
        if (terms or context) and not template:
            raise InputError(f"models with the prompt {name} were not trained with {'terms' if terms else 'context'}")
        is_chinese = bool(template) or bool(prompt.chinese_template) and (source.is_chinese or target.is_chinese)
        self._template = template or (prompt.chinese_template if is_chinese else prompt.template)
        self._fields = {
            "source": source.chinese if is_chinese else source.name,
            "target": target.chinese if is_chinese else target.name,
            "source_code": source.code,
            "target_code": target.code,
            "terms": "\n".join(prompt.term_template.format(*pair) for pair in (terms or {}).items()),
            "context": context,
        }

    @property
    def instruction(self) -> str:
        """The prompt's longest line; an answer that has this line repeats the prompt."""
        lines = self._template.format(**self._fields, text="\n").split("\n")
        return max(lines, key=len)

    def render(self, text: str, chat_template: str) -> str | list[dict[str, Any]]:
        """The prompt for a text, or the messages for the chat template."""
        if self.prompt.chat_word and self.prompt.chat_word in chat_template:
            codes = {"source_lang_code": self._source.code, "target_lang_code": self._target.code}
            return [{"role": "user", "content": [{"type": "text", **codes, "text": text}]}]
        content = self._template.format(**self._fields, text=text)
        return [{"role": "user", "content": content}] if self.prompt.is_chat else content
