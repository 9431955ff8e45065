"""Writes chat.json: what transformers makes of the conversations of tests/text/chat_templates.py."""

import transformers
from jinja2 import TemplateError
from tokenizers import Tokenizer, models

from tests.goldens.writing import write_json
from tests.text.chat_templates import CONVERSATIONS, TEMPLATES, TOKENS


def rendered(source: str, messages: list, with_prompt: bool) -> str | None:
    """The prompt, or None where the template refuses."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0})), **TOKENS)
    options = {"chat_template": source, "tokenize": False, "add_generation_prompt": with_prompt}
    try:
        return tokenizer.apply_chat_template(messages, **options)
    except TemplateError:
        return None


if __name__ == "__main__":
    prompts = {  # every second conversation without the beginning of an answer
        name: [rendered(source, messages, number % 2 == 0) for number, messages in enumerate(CONVERSATIONS)]
        for name, source in TEMPLATES.items()
    }
    write_json("chat", {"transformers": transformers.__version__, "prompts": prompts}, indent=1)
