"""The tests are one package: what one of them needs of another, it imports by its full name."""
