"""The prompt of a call: what is put before every text."""

from fastattn.errors import InputError, check_known, described
from fastattn.spec.text_spec import EncoderText
from fastattn.system.caller_warnings import warn

# A query or a document has the prompt of that name, none where the checkpoint has none, and never the default one.
# sentence-transformers 6.2 means to try "passage" and "corpus" next for a document, but gives each model a prompt
# "document", an empty one if need be, and so never does. Vectors are to be the same.
TASKS = ("query", "document")


def find_prompt(text: EncoderText, name: str | None, prompt: str | None, task: str | None = None) -> str:
    """The ``prompt`` itself, the checkpoint's of that name, that of the task, or else the default one.

    A prompt goes before a name, with a warning, as in sentence-transformers. Raises InputError for a name or a task
    that is not known, and for what is no text.
    """
    if task is not None:
        check_known("task", task, TASKS)
    if prompt is not None:
        if not isinstance(prompt, str):
            raise InputError(f"prompt must be a str, got {type(prompt).__name__}")
        if name is not None:
            warn(f"prompt_name {described(name)} is ignored, since there is a prompt")
        return prompt
    if name is None:
        usual = text.default_prompt if task is None else task
        return "" if usual is None else text.prompts.get(usual, "")
    if not isinstance(name, str):
        raise InputError(f"prompt_name must be a str, got {type(name).__name__}")
    if name not in text.prompts:
        known = f"known: {', '.join(text.prompts)}" if text.prompts else "this checkpoint has none"
        raise InputError(f"unknown prompt_name {name!r}; {known}; prompt is for a text of your own")
    return text.prompts[name]
