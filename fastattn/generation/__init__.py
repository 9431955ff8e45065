"""Generator: continues prompts with a language model; LanguageModelTranslator: translates with one."""
