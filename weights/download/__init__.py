"""Names of checkpoints -> folders here: the catalog and the package index that has it, the Hugging Face hub."""
