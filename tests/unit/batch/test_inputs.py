"""Inputs: every kind becomes the same rows, and every defect is told with its line."""

from __future__ import annotations

import base64
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from heavylift.batch.inputs import Draft, Format, Item, fingerprint, read
from heavylift.batch.records import Defect, Shape
from heavylift.errors import HeavyliftError

CHAT = "/v1/chat/completions"
SHAPE = Shape(model="m")
ASKING = Shape(model="m", template="Name {{ fruit }}.")


def drafts(items: list[Item]) -> list[Draft]:
    """The rows, when there are no defects."""
    assert [item for item in items if isinstance(item, Defect)] == []
    return [item for item in items if isinstance(item, Draft)]


def body(draft: Draft) -> dict[str, Any]:
    """The body of a row."""
    document: dict[str, Any] = json.loads(draft.body)
    return document


def line(custom_id: Any = "a", **given: Any) -> dict[str, Any]:
    """A good batch line, but for what is given."""
    question = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": question, **given}


def write(path: Path, *documents: Any) -> str:
    """A file of JSON lines; text is written as it is."""
    texts = (doc if isinstance(doc, str) else json.dumps(doc) for doc in documents)
    path.write_text("".join(f"{text}\n" for text in texts))
    return str(path)


def test_batch_lines_are_taken_as_they_are(tmp_path: Path) -> None:
    """Names, routes and bodies are kept; blank lines and a byte order mark are nothing."""
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(line("a", url=CHAT)).encode() + b"\n\n")
    with path.open("ab") as file:
        file.write(
            json.dumps(
                line("b", body={"model": "e", "input": ["x"]}, url="/v1/embeddings")
            ).encode()
        )
    first, second = drafts(list(read(str(path), None, Shape())))
    assert (first.custom_id, first.line, first.url) == ("a", 1, CHAT)
    assert (second.custom_id, second.line, second.url) == ("b", 3, "/v1/embeddings")
    assert body(second) == {"model": "e", "input": ["x"]}


def test_streaming_is_not_the_rows_business(tmp_path: Path) -> None:
    """`stream` in a line neither spoils the batch nor changes what the row is."""
    streamed = line(body={**line()["body"], "stream": True, "stream_options": {}})
    path = write(tmp_path / "in.jsonl", line(), streamed)
    first, second = drafts(list(read(path, None, Shape())))
    assert first.key == second.key


def test_all_defects_are_told_with_their_lines(tmp_path: Path) -> None:
    """One bad line hides no other."""
    question = line()["body"]
    path = write(
        tmp_path / "in.jsonl",
        line("good"),
        "{not json",
        [1],
        line(custom_id=7),
        line(custom_id=""),
        line(method="GET"),
        line(url="/v1/images"),
        line(body="text"),
        line(body={"messages": question["messages"]}),
        line(body={"model": "m", "messages": []}),
        line(body={"model": "m", "messages": "text"}),
        line(body={"model": "m", "messages": question["messages"]}, url="/v1/completions"),
    )
    found = [
        (item.line, item.problem) for item in read(path, None, Shape()) if isinstance(item, Defect)
    ]
    assert found == [
        (2, "not_json"),
        (3, "not_an_object"),
        (4, "no_custom_id"),
        (5, "no_custom_id"),
        (6, "method"),
        (7, "url"),
        (8, "no_body"),
        (9, "no_model"),
        (10, "no_question"),
        (11, "no_question"),
        (12, "no_question"),
    ]


def test_fixed_fields_and_the_model_win(tmp_path: Path) -> None:
    """What the command says holds for every row, whatever the row says."""
    shape = Shape(model="ours", fields={"temperature": 0.5})
    (draft,) = drafts(list(read(write(tmp_path / "in.jsonl", line()), None, shape)))
    assert (body(draft)["model"], body(draft)["temperature"]) == ("ours", 0.5)


def test_columns_fill_the_template(tmp_path: Path) -> None:
    """JSON lines and CSV give the same requests; names are told by a column or by number."""
    lines_ = write(tmp_path / "in.jsonl", {"id": 5, "fruit": "fig"}, {"id": 6, "fruit": "a, b"})
    table = tmp_path / "in.csv"
    table.write_text('id,fruit\n5,fig\n6,"a, b"\n')
    shape = Shape(model="m", template="Name {{ fruit }}.", system="Be brief.", id_column="id")
    rows = drafts(list(read(lines_, None, shape)))
    assert [row.custom_id for row in rows] == ["5", "6"]
    assert body(rows[1])["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Name a, b."},
    ]
    tabled = drafts(list(read(str(table), None, shape)))
    assert [row.key for row in tabled] == [row.key for row in rows]
    (unnamed, _) = drafts(list(read(str(table), None, ASKING)))
    assert unnamed.custom_id == "row-1"


def test_a_row_of_columns_may_name_its_model(tmp_path: Path) -> None:
    """--model wins over it; a model that is no name is a defect."""
    source = write(tmp_path / "in.jsonl", {"custom_id": "a", "model": "own", "prompt": "hi"})
    assert body(drafts(list(read(source, None, Shape())))[0])["model"] == "own"
    assert body(drafts(list(read(source, None, SHAPE)))[0])["model"] == "m"
    unnamed = write(tmp_path / "un.jsonl", {"model": 7, "prompt": "hi"})
    assert list(read(unnamed, None, Shape())) == [Defect(line=1, problem="no_model")]


def test_columns_can_be_renamed(tmp_path: Path) -> None:
    """The template's names are its own; a column of another name is mapped to them."""
    path = write(tmp_path / "in.jsonl", {"Obst Name": "fig"})
    shape = Shape(model="m", template="{{ fruit }}", columns={"fruit": "Obst Name"})
    (draft,) = drafts(list(read(path, None, shape)))
    assert body(draft)["messages"][0]["content"] == "fig"


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/completions", {"prompt": "hi"}),
        ("/v1/embeddings", {"input": "hi"}),
        ("/v1/responses", {"input": "hi"}),
    ],
)
def test_a_prompt_goes_where_its_route_has_it(
    tmp_path: Path, url: str, asked: dict[str, Any]
) -> None:
    """A column `prompt` is enough; whole conversations come in a column `messages`."""
    path = write(tmp_path / "in.jsonl", {"prompt": "hi"})
    (draft,) = drafts(list(read(path, None, Shape(model="m", url=url))))
    assert body(draft) == {**asked, "model": "m"}
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    path = write(tmp_path / "talk.jsonl", {"messages": talk})
    (draft,) = drafts(list(read(path, None, SHAPE)))
    assert body(draft)["messages"] == talk


def test_a_schema_is_only_for_chats(tmp_path: Path) -> None:
    """Where it could not be asked for it is refused, not forgotten."""
    path = write(tmp_path / "in.jsonl", {"prompt": "hi"})
    shape = Shape(model="m", url="/v1/embeddings", schema={"type": "object"})
    (item,) = read(path, None, shape)
    assert isinstance(item, Defect)
    assert item.problem == "schema_route"


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        (Shape(model="m", template="{{ vegetable }}"), "template"),
        (Shape(model="m", template="{{ fruit / 2 }}"), "template"),
        (Shape(model="m", template="{{ fruit.__class__.__mro__ }}"), "template"),
        (Shape(model="m", template="x", columns={"a": "nowhere"}), "no_column"),
        (Shape(model="m", template="x", id_column="nowhere"), "no_id"),
        (Shape(model="m"), "no_prompt"),
    ],
)
def test_a_row_that_does_not_fill_the_template_is_a_defect(
    tmp_path: Path, shape: Shape, problem: str
) -> None:
    """No empty places in prompts, and no way out of the sandbox."""
    path = write(tmp_path / "in.jsonl", {"fruit": "fig"})
    (item,) = read(path, None, shape)
    assert isinstance(item, Defect)
    assert item.problem == problem


def test_a_broken_template_is_refused_before_anything(tmp_path: Path) -> None:
    """Its line is told."""
    path = write(tmp_path / "in.jsonl", {"fruit": "fig"})
    with pytest.raises(HeavyliftError, match="BAT004"):
        list(read(path, None, Shape(model="m", template="{% if %}")))


def test_what_a_row_is_makes_its_key(tmp_path: Path) -> None:
    """Another body, model, route or template is other work; another name is not."""
    path = write(tmp_path / "in.jsonl", {"fruit": "fig"}, {"fruit": "fig", "custom_id": "x"})
    first, twin = drafts(list(read(path, None, ASKING)))
    assert first.key == twin.key
    others = [
        Shape(model="n", template=ASKING.template),
        Shape(model="m", template="Name {{fruit}}."),  # renders alike, is another version
        Shape(model="m", template="Name {{ fruit }}!"),
        Shape(model="m", template=ASKING.template, fields={"seed": 1}),
    ]
    keys = {drafts(list(read(path, None, shape)))[0].key for shape in others}
    assert len(keys | {first.key}) == 5


@pytest.mark.parametrize(
    ("text", "problem", "at"),
    [
        ("a,b\n1,2\n3\n", "columns", 3),
        ("a,b\n1,2,3\n", "columns", 2),
        ('a,b\n"x" y,2\n', "not_csv", 2),
    ],
)
def test_a_broken_table_is_told_with_its_line(
    tmp_path: Path, text: str, problem: str, at: int
) -> None:
    """Fields too few, too many, quotes out of place."""
    path = tmp_path / "in.csv"
    path.write_text(text)
    found = list(read(str(path), None, Shape(model="m", template="x")))
    defects = [item for item in found if isinstance(item, Defect)]
    assert [(item.problem, item.line) for item in defects] == [(problem, at)]


def test_a_cell_may_be_a_document(tmp_path: Path) -> None:
    """Half a megabyte in one field, with line breaks, is one row."""
    path = tmp_path / "in.csv"
    path.write_text('text\n"' + "word\n" * 100_000 + '"\n')
    (draft,) = drafts(list(read(str(path), None, Shape(model="m", template="{{ text }}"))))
    assert len(draft.body) > 500_000


def test_a_folder_is_a_row_per_document(tmp_path: Path) -> None:
    """Texts are the prompt or fill it; pictures are sent in line; other files are told."""
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "b.txt").write_text("bee")
    (folder / "sub" / "a.md").write_text("# ay")
    (folder / "c.png").write_bytes(b"\x89PNG")
    (folder / ".hidden").write_text("no")
    (folder / "d.exe").write_bytes(b"MZ")
    (folder / "e.txt").write_bytes(b"\xff\xfe")
    shape = Shape(model="m", template="Sum up {{ name }}: {{ text }}")
    items = list(read(str(folder), None, shape))
    rows = {item.custom_id: body(item) for item in items if isinstance(item, Draft)}
    assert set(rows) == {"b.txt", "c.png", "sub/a.md"}
    assert rows["b.txt"]["messages"][0]["content"] == "Sum up b.txt: bee"
    words, picture = rows["c.png"]["messages"][0]["content"]
    assert words == {"type": "text", "text": "Sum up c.png: "}
    data = base64.b64encode(b"\x89PNG").decode()
    assert picture["image_url"]["url"] == f"data:image/png;base64,{data}"
    defects = {item.problem for item in items if isinstance(item, Defect)}
    assert defects == {"not_a_document", "not_text"}
    plain = drafts([item for item in read(str(folder), None, SHAPE) if isinstance(item, Draft)])
    assert body(plain[0])["messages"][0]["content"] == "bee"


def test_rows_can_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first line says which kind they are."""
    piped = io.BytesIO(json.dumps(line("a")).encode() + b"\n")
    stdin = io.TextIOWrapper(io.BufferedReader(piped))
    monkeypatch.setattr(sys, "stdin", stdin)
    (draft,) = drafts(list(read("-", None, Shape())))
    assert draft.custom_id == "a"
    assert fingerprint("-") is None


def test_a_source_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """With the system's reason."""
    with pytest.raises(HeavyliftError, match=r"BAT001.*No such file"):
        list(read(str(tmp_path / "nowhere"), None, SHAPE))


def test_parquet_gives_the_rows_of_its_table(tmp_path: Path) -> None:
    """Where the package for it is installed; elsewhere the error names it."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415 - an extra
    except ImportError:
        (tmp_path / "in.parquet").write_bytes(b"PAR1")
        with pytest.raises(HeavyliftError, match=r"BAT002.*pyarrow"):
            list(read(str(tmp_path / "in.parquet"), None, ASKING))
        return
    path = tmp_path / "in.parquet"
    parquet.write_table(pa.table({"fruit": ["fig", "pear"]}), path)
    rows = drafts(list(read(str(path), Format.PARQUET, ASKING)))
    assert [body(row)["messages"][0]["content"] for row in rows] == ["Name fig.", "Name pear."]
