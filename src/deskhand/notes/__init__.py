"""Notes: a vault of Markdown files, read and changed safely, listed and searched through a disposable index."""
