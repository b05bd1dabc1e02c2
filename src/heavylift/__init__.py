"""Heavylift: from a model and a rack of GPUs to a proven OpenAI-compatible service.

The packages tell the story in order: `facts` and `checkpoint` say what is known, `plan` accounts
for every byte, `recipe` turns a plan into files and commands, `launch` starts and watches the
engine. `cli` is the only place that speaks to a person.
"""

__version__ = "0.1.0"
