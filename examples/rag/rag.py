"""Answers from a folder of texts, with file and line of what they rest on.

export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=hl_…
python rag.py documents 'How long are backups kept?' --model smollm2-135m-instruct

Nothing leaves the gateway: it serves the embeddings too. Vectors are kept beside the folder and
made again only for passages that changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import openai

PASSAGE_BYTES = 480  # no tokenizer makes more tokens than bytes: fits the 512 of a small server
BATCH = 16
RULES = (
    "Answer from the numbered passages only and cite each you use, like [1]. "
    "If they do not say, say so. Answer in the language of the question."
)

Vector = list[float]


@dataclass(frozen=True)
class Passage:
    """Some lines of a file, numbered from 1."""

    file: str
    first: int
    last: int
    text: str

    @property
    def place(self) -> str:
        """As editors and compilers write it."""
        return f"{self.file}:{self.first}" + (f"-{self.last}" if self.last > self.first else "")

    @property
    def digest(self) -> str:
        """The key of its vector."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def passages(folder: Path) -> Iterator[Passage]:
    """Paragraphs of every .md and .txt file; long ones in parts."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in {".md", ".txt"} and path.is_file():
            yield from _passages_of(str(path.relative_to(folder)), path.read_text("utf-8"))


def _passages_of(file: str, text: str) -> Iterator[Passage]:
    held: list[tuple[int, str]] = []

    def whole() -> Iterator[Passage]:
        if held:
            lines = "\n".join(line for _, line in held)
            yield Passage(file, held[0][0], held[-1][0], lines)
            held.clear()

    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            yield from whole()
        for part in _parts(line.strip()):
            size = sum(len(each.encode()) + 1 for _, each in held)
            if size + len(part.encode()) > PASSAGE_BYTES:
                yield from whole()
            held.append((number, part))
    yield from whole()


def _parts(line: str) -> Iterator[str]:
    """The line, cut between characters where it is too long for a passage."""
    part = ""
    for character in line:
        if len((part + character).encode()) > PASSAGE_BYTES:
            yield part
            part = ""
        part += character
    if part:
        yield part


def embed(client: openai.OpenAI, model: str, texts: Sequence[str]) -> list[Vector]:
    """A vector per text."""
    vectors: list[Vector] = []
    for start in range(0, len(texts), BATCH):
        reply = client.embeddings.create(model=model, input=list(texts[start : start + BATCH]))
        vectors += [each.embedding for each in sorted(reply.data, key=lambda each: each.index)]
    return vectors


def index(client: openai.OpenAI, model: str, found: Sequence[Passage], kept: Path) -> list[Vector]:
    """The vectors of passages; those that are kept are not made again."""
    known: dict[str, Vector] = {}
    if kept.is_file():
        before = json.loads(kept.read_text("utf-8"))
        if before["model"] == model:  # vectors of two models cannot be compared
            known = before["vectors"]
    new = list({each.digest: each.text for each in found if each.digest not in known}.items())
    made = embed(client, model, [text for _, text in new])
    known |= dict(zip((digest for digest, _ in new), made, strict=True))
    used = {each.digest: known[each.digest] for each in found}
    kept.write_text(json.dumps({"model": model, "vectors": used}), "utf-8")
    print(f"{len(found)} passages, {len(new)} embedded", file=sys.stderr)
    return [used[each.digest] for each in found]


def nearest(question: Vector, vectors: Sequence[Vector], count: int) -> list[int]:
    """The passages nearest to the question, by cosine of what differs from their mean.

    The mean is what all have in common: chat models point all texts in nearly one direction.
    """
    mean = [math.fsum(column) / len(vectors) for column in zip(*vectors, strict=True)]

    def unlike(vector: Vector) -> Vector:
        moved = [value - common for value, common in zip(vector, mean, strict=True)]
        length = math.hypot(*moved) or 1.0
        return [value / length for value in moved]

    asked = unlike(question)

    def likeness(number: int) -> float:
        return math.fsum(a * b for a, b in zip(asked, unlike(vectors[number]), strict=True))

    return sorted(range(len(vectors)), key=likeness, reverse=True)[:count]


def prompt(question: str, given: Sequence[Passage]) -> str:
    """The question under the passages it is to be answered from."""
    shown = "\n\n".join(f"[{number}] {each.text}" for number, each in enumerate(given, start=1))
    return f"{RULES}\n\n{shown}\n\nQuestion: {question}"


def cited(answer: str, given: Sequence[Passage]) -> set[int]:
    """Numbers that the answer cites and that were given: an invented one is no citation."""
    numbers = {int(number) for number in re.findall(r"[\[【](\d+)[\]】]", answer)}
    return {number for number in numbers if 1 <= number <= len(given)}


def answered(
    client: openai.OpenAI, asked: argparse.Namespace, found: Sequence[Passage]
) -> tuple[list[Passage], str]:
    """The passages nearest to the question, and the answer from them."""
    embedder = asked.embedding_model or asked.model
    kept = asked.index or asked.folder.with_name(f"{asked.folder.resolve().name}.vectors.json")
    vectors = index(client, embedder, found, kept)
    (question,) = embed(client, embedder, [asked.question])
    given = [found[number] for number in nearest(question, vectors, asked.passages)]
    reply = client.chat.completions.create(
        model=asked.model,
        messages=[{"role": "user", "content": prompt(asked.question, given)}],
        max_tokens=asked.max_tokens,
        temperature=0,
    )
    return given, reply.choices[0].message.content or ""


def main() -> int:
    """0 with an answer, 3 for a folder without texts."""
    parser = argparse.ArgumentParser(description="Ask a folder of texts.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("question")
    parser.add_argument("--model", required=True)
    parser.add_argument("--embedding-model", help="unless the same model embeds")
    parser.add_argument("--passages", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument(
        "--index", type=Path, help="where vectors are kept; unset, beside the folder"
    )
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = list(passages(asked.folder))
    if not found:
        print(f"no .md or .txt with text in it: {asked.folder}", file=sys.stderr)
        return 3
    with openai.OpenAI() as client:
        given, answer = answered(client, asked, found)
    used = cited(answer, given)
    if asked.json:
        sources = [
            {
                "number": number,
                "file": each.file,
                "first_line": each.first,
                "last_line": each.last,
                "text": each.text,
                "cited": number in used,
            }
            for number, each in enumerate(given, start=1)
        ]
        print(json.dumps({"answer": answer, "sources": sources}, ensure_ascii=False, indent=1))
        return 0
    print(answer)
    print()
    for number, each in enumerate(given, start=1):
        print(f"[{number}] {each.place}" + ("" if number in used else "  (given, not cited)"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
