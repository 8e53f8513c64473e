"""How well diagnoses find what changed."""
