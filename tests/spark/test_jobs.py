"""Files into streams, streams into a lake, a lake into streams; and whether Spark works at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.test_sink import entries, fill, url, values
from tests.support.servers import REPOSITORY, AnabranchServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_files_are_taken_in_once_and_in_order(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    from tests.spark.example_jobs import ingest

    lines = [f"{each},{'x' if each != 500 else 'not a number'},v{each}" for each in range(1000)]
    lines = [line.replace(",x,", f",{each},") for each, line in enumerate(lines)]
    (tmp_path / "a.csv").write_text("id,n,ts\n" + "\n".join(lines) + "\n,,\n")
    (tmp_path / "b.jsonl").write_text('{"id": 7, "n": 8, "ts": "w"}\n{"id": broken\n')
    for new in (1002, 0):
        done = ingest(
            spark,
            [tmp_path],
            url=url(ours),
            stream="s",
            schema="id int, n int, ts string",
        )
        assert (done.files, done.rows, done.bad, done.new) == (2, 1000, 2, new)
    assert values(ours, "s") == [*range(500), *range(501, 1000), 7]
    assert entries(ours, "s")[-1][1] == [b"id", b"7", b"n", b"8", b"ts", b"w"]
    assert [words for _, words in entries(ours, "s:bad")] == [
        [b"_corrupt_record", b"500,not a number,v500"],
        [b"_corrupt_record", b'{"id": broken'],
    ]


def test_a_file_without_rows_and_one_without_anything(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    from examples.spark.ingest import IngestError
    from tests.spark.example_jobs import ingest

    path = tmp_path / "some.csv"
    for text in ("", "\n\n"):
        path.write_text(text)
        with pytest.raises(IngestError, match=f"{path}: it is empty"):
            ingest(spark, [path], url=url(ours), stream="s")
    path.write_text("x,y\n")
    done = ingest(spark, [path], url=url(ours), stream="s")
    assert (done.files, done.rows, done.bad) == (1, 0, 0)
    assert not entries(ours, "s")


def test_the_name_of_a_file_is_no_pattern(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    from tests.spark.example_jobs import ingest

    names = ("part1.csv", "part*.csv", "m[1].csv", "m1.csv", "o{1,2}.csv", "q?.csv", r"b\n.csv")
    for number, name in enumerate(names):
        (tmp_path / name).write_text(f"n\n{number}\n")
        done = ingest(spark, [tmp_path / name], url=url(ours), stream="s")
        assert (done.rows, done.new) == (1, 1), name
    assert values(ours, "s") == [*range(len(names))]


@pytest.mark.parametrize("name", ["_x.csv", ".x.jsonl"])
def test_a_file_that_spark_hides_is_refused_before_others_are_written(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path, name: str
) -> None:
    from examples.spark.ingest import IngestError
    from tests.spark.example_jobs import ingest

    (tmp_path / "a.csv").write_text("n\n1\n")
    (tmp_path / name).write_text("n\n1\n")
    for paths in ([tmp_path], [tmp_path / "a.csv", tmp_path / name]):
        with pytest.raises(IngestError, match=f"{name}: Spark reads no file whose name begins"):
            ingest(spark, paths, url=url(ours), stream="s", schema="n int")
    assert entries(ours, "s") == []


def test_a_key_column_chooses_the_stream_and_a_dry_run_writes_nothing(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    from examples.spark.ingest import IngestError
    from tests.spark.example_jobs import ingest

    path = tmp_path / "a.csv"
    path.write_text("n,city\n1,ulm\n2,bonn\n3,ulm\n4,\n")
    arguments = {"url": url(ours), "stream": "s", "key": "city"}
    assert ingest(spark, [path], dry_run=True, **arguments).rows == 4
    assert entries(ours, "s:ulm") == []
    ingest(spark, [path], **arguments)
    assert [values(ours, key) for key in ("s:ulm", "s:bonn", "s")] == [[1, 3], [2], [4]]
    with pytest.raises(IngestError, match="no column 'town' among n, city"):
        ingest(spark, [path], url=url(ours), stream="s", key="town")


@pytest.mark.parametrize("header", ["user.id", "we`ird", "a.`b`"])
def test_a_key_column_may_have_any_name(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path, header: str
) -> None:
    from tests.spark.example_jobs import ingest

    (tmp_path / "a.csv").write_text(f"{header},n\nu1,1\nu2,2\n")
    ingest(spark, [tmp_path], url=url(ours), stream="s", key=header)
    assert entries(ours, "s:u2")[0][1] == [header.encode(), b"u2", b"n", b"2"]


def test_rows_do_not_come_among_lines_that_do_not_fit(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    from examples.spark.ingest import IngestError
    from tests.spark.example_jobs import ingest

    (tmp_path / "a.csv").write_text("status,n\nbad,1\ngood,2\nbad,x\n")
    given = {"url": url(ours), "stream": "s", "key": "status"}
    with pytest.raises(
        IngestError, match=r"column 'status' by which it belongs to s:bad.*\(bad_stream\)"
    ):
        ingest(spark, [tmp_path], schema="status string, n int", **given)
    assert entries(ours, "s:good") == []
    given["bad_stream"] = "t"
    done = ingest(spark, [tmp_path], schema="status string, n int", **given)
    assert (done.rows, done.bad, len(entries(ours, "t"))) == (2, 1, 1)
    (tmp_path / "a.csv").unlink()
    (tmp_path / "a.jsonl").write_text('{"status": "bad", "n": 1}\n')
    done = ingest(spark, [tmp_path], url=url(ours), stream="u", key="status")
    assert (done.rows, done.bad, len(entries(ours, "u:bad"))) == (1, 0, 1)
    (tmp_path / "a.jsonl").unlink()
    (tmp_path / "a.csv").write_text("status,n\nbad,x\n")  # a line, and no row
    given = {"url": url(ours), "stream": "v", "key": "status", "schema": "status string, n int"}
    assert ingest(spark, [tmp_path], **given).bad == 1


def test_values_of_a_csv_file_are_what_is_between_the_quotes(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    from tests.spark.example_jobs import ingest

    path = tmp_path / "a.csv"
    path.write_bytes(
        b'id,ID,text\n1,2,"two\r\nlines"\n3,4,"he said ""hi, you"" \\"\n'
        b"5,6\n7,8,x,9\n10,11,\xc3\xa4\n"
    )
    wanted = [
        [b"id", b"1", b"ID", b"2", b"text", b"two\r\nlines"],
        [b"id", b"3", b"ID", b"4", b"text", b'he said "hi, you" \\'],
        [b"id", b"10", b"ID", b"11", b"text", "\u00e4".encode()],
    ]
    unfit = [[b"_corrupt_record", b"5,6"], [b"_corrupt_record", b"7,8,x,9"]]
    for stream, schema in (("s", None), ("t", "id int, ID int, text string")):
        done = ingest(spark, [path], url=url(ours), stream=stream, schema=schema)
        assert (done.rows, done.bad, done.new) == (3, 2, 5)
        assert [words for _, words in entries(ours, stream)] == wanted
        assert [words for _, words in entries(ours, f"{stream}:bad")] == unfit


@pytest.mark.parametrize(
    "header", ["a,b", '"a,\n""b""",c', "a,,A,a,", "\ufeffa,b", " a ,b", "\n\na,b"]
)
def test_a_csv_header_is_read_as_spark_reads_it(
    spark: SparkSession, tmp_path: Path, header: str
) -> None:
    from examples.spark.ingest import _as_needed, _header

    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n", encoding="utf-8")
    with _as_needed(spark):
        columns = spark.read.csv(str(path), header=True, multiLine=True, escape='"').columns
    assert _header(path) == columns


def test_a_csv_header_without_an_end_is_refused(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    from examples.spark.ingest import IngestError
    from tests.spark.example_jobs import ingest

    path = tmp_path / "a.csv"
    path.write_text('a,"b\n' + "1,2\n" * 100_000)
    with pytest.raises(IngestError, match=f"{path}: the header cannot be read"):
        ingest(spark, [path], url=url(ours), stream="s")
    assert entries(ours, "s") == []


def test_a_schema_has_the_names_of_the_header_in_their_order(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    from examples.spark.ingest import IngestError
    from tests.spark.example_jobs import ingest

    path = tmp_path / "a.csv"
    path.write_text("city,people\nBonn,336000\n")
    for schema in ("people string, city string", "city string", "city string, People int"):
        with pytest.raises(IngestError, match="its columns are city, people, and those of the sch"):
            ingest(spark, [path], url=url(ours), stream="s", schema=schema)
    assert entries(ours, "s") == []


def test_json_may_have_names_that_differ_in_case_and_nested_values(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    from tests.spark.example_jobs import ingest

    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1, "A": 2, "o": {"x": [1, null], "y": "z"}}\n{"a": 3}\n')
    assert ingest(spark, [path], url=url(ours), stream="s").rows == 2
    assert [dict(zip(words[::2], words[1::2], strict=True)) for _, words in entries(ours, "s")] == [
        {b"a": b"1", b"A": b"2", b"o": b'{"x":[1,null],"y":"z"}'},
        {b"a": b"3"},
    ]


def test_a_lake_gives_back_what_it_was_given(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    from anabranch.spark.jobs.archive import archive
    from tests.spark.example_jobs import replay

    options = {"url": url(ours), "subscribe": "s,t", "maxEntriesPerTrigger": "700"}
    with ours.client() as client:
        for day in range(3):
            client.call("XADD", "t", f"{day * 86_400_000 + 5}-1", "a", "1", "a", "2", "", "\r\n")
    fill(ours, "s", 2000)
    first = archive(spark, tmp_path, options=options)
    assert (first.entries, first.total, first.gaps) == (2003, 2003, ())
    fill(ours, "s", 500)
    # The batch that was published before the driver noted it: it is there once.
    newest = max(
        int(e.name) for e in (tmp_path / "_checkpoint/commits").iterdir() if e.name.isdigit()
    )
    (tmp_path / "_checkpoint" / "commits" / str(newest)).unlink()
    second = archive(spark, tmp_path, options=options)
    assert (second.entries, second.total, second.gaps) == (500, 2503, ())
    days = {each.name for each in (tmp_path / "stream=t").iterdir()}
    assert days == {"date=1970-01-01", "date=1970-01-02", "date=1970-01-03"}

    said = replay(spark, tmp_path, url=url(ours), prefix="new:", dry_run=True)
    assert (said.entries, said.streams, entries(ours, "new:s")) == (2503, ("new:s", "new:t"), [])
    for _ in range(2):
        replay(spark, tmp_path, url=url(ours), prefix="new:")
    for key in ("s", "t"):
        assert entries(ours, f"new:{key}") == entries(ours, key)
    part = replay(
        spark,
        tmp_path,
        url=url(ours),
        prefix="part:",
        streams=["t"],
        since_ms=5,
        until_ms=86_400_005,
    )
    assert part.entries == len(entries(ours, "part:t")) == 1


@pytest.mark.parametrize("option", ["--no-spark", pytest.param("--spark", marks=pytest.mark.long)])
def test_the_doctor_finds_everything_in_place(
    ours: AnabranchServer, tmp_path: Path, option: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "anabranch", "spark", "doctor", "-u", url(ours), "--json", option],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    found = {each["what"]: each["found"] for each in report["checks"]}
    assert report["healthy"]
    assert "AB.IMPORT" in found["server"]
    assert ("ten rows" in found.get("Spark", "")) == (option == "--spark")
