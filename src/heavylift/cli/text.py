"""The only way text leaves this package: `text(key, **params)`, in the language in use."""

from __future__ import annotations

from heavylift.locale.text import keys, printable, refusal, sentence, text, words

__all__ = ["keys", "printable", "refusal", "sentence", "text", "words"]
