"""Options: names, values, and the sentence that a mistake gets."""

from __future__ import annotations

import pickle

import pytest

from anabranch.spark.options import OptionError, ReadOptions, WriteOptions


def test_names_may_come_in_any_case_and_as_kafka_calls_them():
    read = ReadOptions.parse(
        {"SUBSCRIBE": "a, b,a", "maxoffsetspertrigger": "10", "minPartitions": "3"}
    )
    assert read.subscribe == ("a", "b")
    assert (read.max_entries, read.min_partitions) == (10, 3)


def test_defaults_are_the_documented_ones():
    read = ReadOptions.parse({"subscribe": "a"})
    assert read.fail_on_data_loss
    assert read.poll_timeout_ms == 200
    assert read.max_batch_bytes == 8 << 20
    assert read.server.url == "redis://127.0.0.1:6379"
    assert (read.server.retries, read.server.retry_interval_ms) == (5, 200)
    assert WriteOptions.parse({"stream": "s"}).max_rows_in_flight == 2048


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "a", "failOnDataLos": "false"}, "did you mean failOnDataLoss"),
        ({"subscribe": "a", "maxEntryPerTrigger": "1"}, "did you mean maxEntriesPerTrigger"),
        ({"subscribe": "a", "pushDownFilters": "true"}, "unknown option 'pushDownFilters'"),
        ({"subscribe": "a", "zzz": "1"}, "known are .*subscribePattern"),
        ({"path": "orders"}, "name it with option subscribe"),
        ({"url": "h"}, "exactly one of .* none was given"),
        ({}, r"no option came.*options of CREATE TABLE.*SELECT \.\.\. FROM table WITH"),
        ({"subscribe": "a", "subscribePattern": "b*"}, "several were given"),
        ({"subscribe": " , "}, "at least one name"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions: 0 is less than 1"),
        ({"subscribe": "a", "minPartitions": "x"}, "whole number"),
        ({"subscribe": "a", "failOnDataLoss": "yes"}, "true or false"),
        ({"subscribe": "a", "mode": "STRICT"}, "PERMISSIVE or FAILFAST or DROPMALFORMED"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "duration such as"),
        ({"subscribe": "a", "maxBatchBytes": "0"}, "size such as"),
        ({"subscribe": "a", "exportCodec": "lz4"}, "exportCodec: nodes or none or zstd"),
        ({"subscribe": "a", "fieldMapping": "[]"}, "JSON object"),
        ({"subscribe": "a", "fieldMapping": '{"a":1}'}, "texts"),
        ({"assign": '{"a":"eu"}'}, "list of names"),
        ({"assign": '{"a":[]}'}, "list of names"),
        ({"subscribe": "a", "startingOffsets": "latest", "startingTimestamp": "1"}, "exclude"),
        (
            {"subscribe": "a", "maxEntriesPerTrigger": "1", "maxOffsetsPerTrigger": "2"},
            "mean the same",
        ),
    ],
)
def test_mistakes_are_named(options, text):
    with pytest.raises(OptionError, match=text):
        ReadOptions.parse(options)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("batch", "maxEntriesPerTrigger", "2"), ("batch", "minEntriesPerTrigger", "2"),
        ("batch", "maxTriggerDelay", "1s"), ("batch", "commitGroup", "g"),
        ("batch", "allowSubscriptionChange", "true"), ("batch", "pollTimeoutMs", "7"),
        ("batch", "discoveryIntervalMs", "7"), ("streaming", "endingOffsets", "latest"),
        ("streaming", "endingTimestamp", "7"),
    ],
)  # fmt: skip
def test_options_of_one_kind_of_read_are_refused_by_the_other(kind, name, value):
    options = ReadOptions.parse({"subscribe": "a", name: value})
    other = {"batch": "streaming", "streaming": "batch"}[kind]
    options.check_kind(other)
    with pytest.raises(OptionError, match=f"option {name} is for {other} reads"):
        options.check_kind(kind)


def test_writing_knows_its_own_options_only():
    with pytest.raises(OptionError, match="unknown option 'subscribe'"):
        WriteOptions.parse({"subscribe": "a"})
    with pytest.raises(OptionError, match="name it with option stream"):
        WriteOptions.parse({"path": "a"})
    with pytest.raises(OptionError, match=r"no option came.*INSERT INTO table WITH \(url"):
        WriteOptions.parse({})
    with pytest.raises(OptionError, match="maxLen and minId"):
        WriteOptions.parse({"stream": "a", "maxLen": "1", "minId": "5"})
    assert WriteOptions.parse({"topic": "a", "checkpointLocation": "/x"}).stream == "a"


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("500ms", 500), ("2 h", 7_200_000), ("250", 250)]
)
def test_durations(text, ms):
    assert ReadOptions.parse({"subscribe": "a", "maxTriggerDelay": text}).max_trigger_delay_ms == ms


@pytest.mark.parametrize(("text", "size"), [("8m", 8 << 20), ("512K", 512 << 10), ("100", 100)])
def test_sizes(text, size):
    assert ReadOptions.parse({"subscribe": "a", "maxBatchBytes": text}).max_batch_bytes == size


def test_secrets_are_not_printed_and_everything_travels():
    read = ReadOptions.parse(
        {"subscribe": "a", "url": "redis://u:hunter2@h", "password": "hunter3"}
    )
    assert "hunter" not in repr(read)
    assert pickle.loads(pickle.dumps(read)) == read
    assert read.server.password == "hunter3"


@pytest.mark.parametrize("name", ["tls.ca", "tls.cert", "tls.key"])
def test_files_of_tls_need_an_address_that_asks_for_tls(name):
    for kind, more in ((ReadOptions, {"subscribe": "a"}), (WriteOptions, {"stream": "a"})):
        for url in ({}, {"url": "redis://there:1"}, {"url": "unix:///there"}):
            with pytest.raises(OptionError, match=f"option {name} is for TLS.* begin with rediss:"):
                kind.parse({name: "/file", **url, **more})
        assert kind.parse({name: "/file", "url": "rediss://there", **more})


def test_an_address_without_a_scheme_is_one_of_tcp():
    options = ReadOptions.parse({"url": "127.0.0.1:6379", "subscribe": "s"})
    assert options.server.url == "redis://127.0.0.1:6379"


@pytest.mark.parametrize(
    "url",
    [
        "http://h:1",
        "redis://h:abc",
        "redis://h:65536",
        "REDIS://h",
        "redis://:hunter2/3@h",
        "://h",
    ],
)
def test_a_wrong_address_is_refused_and_not_shown(url):
    with pytest.raises(OptionError, match="option url: redis:") as caught:
        ReadOptions.parse({"url": url, "subscribe": "s"})
    assert "hunter" not in str(caught.value)


def test_an_id_to_trim_by_is_checked_before_anything_is_written():
    assert WriteOptions.parse({"stream": "s", "minId": "17-1"}).min_id == "17-1"
    with pytest.raises(OptionError, match="option minId: an ID such as 1718000000000-0 is needed"):
        WriteOptions.parse({"stream": "s", "minId": "x"})


def test_the_command_line_refuses_a_mistyped_option_before_anything_starts():
    from click.testing import CliRunner

    from anabranch.cli.spark import command

    words = ["archive", "lake", "--streams", "s", "-o", "failOnDataLos=false"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 2
    assert "did you mean failOnDataLoss?" in done.output
