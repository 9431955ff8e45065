"""Writes chat.json: what transformers makes of the conversations of tests/text/chat_templates.py.

Run from the root, in an environment with transformers and jinja2: python -m tests.goldens.make_chat
"""

import json
from pathlib import Path

import transformers
from jinja2 import TemplateError
from tokenizers import Tokenizer, models

from tests.text.chat_templates import CONVERSATIONS, TEMPLATES, TOKENS

FILE = Path(__file__).parent / "chat.json"


def rendered(source: str, messages: list, with_prompt: bool) -> str | None:
    """The prompt, or None where the template refuses."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0})), **TOKENS)
    try:
        return tokenizer.apply_chat_template(
            messages, chat_template=source, tokenize=False, add_generation_prompt=with_prompt
        )
    except TemplateError:
        return None


def main() -> None:
    """Every second conversation without the beginning of an answer."""
    prompts = {
        name: [rendered(source, messages, number % 2 == 0) for number, messages in enumerate(CONVERSATIONS)]
        for name, source in TEMPLATES.items()
    }
    found = {"transformers": transformers.__version__, "prompts": prompts}
    FILE.write_text(json.dumps(found, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
