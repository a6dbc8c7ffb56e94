"""The fast path of `elfkiln check-missing`: no doit, jinja2, yaml or xdsl import."""

from __future__ import annotations


def main(words: list[str]) -> int | None:
    """Answer if the flat index is current and the words are plain, else return None for the full path."""
    del words
    return None
