"""Safe hands for AI assistants at a person's desk."""

__version__ = "0.1.0"
