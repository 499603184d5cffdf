"""Types of settings: what they take, what they show, Redis's sentences when they refuse."""

from __future__ import annotations

import pytest

from anabranch.config.kinds import (
    Addresses,
    Choice,
    EventClasses,
    Integer,
    Memory,
    Name,
    Octal,
    OutputLimits,
    SavePoints,
    WordList,
    YesNo,
)


def test_a_name_can_be_read() -> None:
    for text in ("", "eu", "eu west", "são-paulo"):
        assert Name().parse([text]) == text
    for text in (" ", " \u00a0 ", "eu\nrole:replica", "e\x1b[31mu"):
        with pytest.raises(ValueError, match="a name that can be read"):
            Name().parse([text])


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("b", None), ("1kb", 1024), ("1k", 1000), ("2MB", 2 << 20)]
)
def test_memory_takes_units(text: str, value: int | None) -> None:
    if value is None:
        with pytest.raises(ValueError, match="argument must be a memory value"):
            Memory().parse([text])
    else:
        assert Memory().parse([text]) == value


@pytest.mark.parametrize("text", ["", "x", "+5", "01", " 1", "1 ", "9223372036854775808", "1.5"])
def test_an_integer_must_be_canonical(text: str) -> None:
    with pytest.raises(ValueError, match="argument couldn't be parsed into an integer"):
        Integer().parse([text])


def test_an_integer_beyond_its_bounds_names_them() -> None:
    with pytest.raises(ValueError, match="argument must be between 1 and 5 inclusive"):
        Integer(1, 5).parse(["6"])


def test_a_percentage_only_where_allowed() -> None:
    percent = Memory(percent=True)
    assert percent.format(percent.parse(["10%"])) == "10%"
    with pytest.raises(ValueError, match="argument must be a memory or percent value"):
        percent.parse(["x"])
    with pytest.raises(ValueError, match="argument must be a memory value"):
        Memory().parse(["10%"])


def test_octal_permissions() -> None:
    assert Octal().format(Octal().parse(["0770"])) == "770"
    with pytest.raises(ValueError, match="octal"):
        Octal().parse(["9"])


def test_a_switch_takes_two_words() -> None:
    assert YesNo().parse(["YES"]) is True
    with pytest.raises(ValueError, match="argument must be 'yes' or 'no'"):
        YesNo().parse(["maybe"])


def test_a_choice_lists_its_words() -> None:
    with pytest.raises(ValueError, match=r"argument\(s\) must be one of the following: a, b$"):
        Choice("a", "b").parse(["c"])


def test_words_and_save_points_are_written_the_way_they_are_read() -> None:
    assert WordList().parse(["a  b", "c"]) == "a b c"
    save = SavePoints()
    value = save.parse(["3600 1", "300", "100"])
    assert value == "3600 1 300 100"
    assert save.lines(value) == [["3600", "1"], ["300", "100"]]
    assert save.lines("") == [[""]]
    with pytest.raises(ValueError, match="Invalid save parameters"):
        save.parse(["3600"])


def test_output_limits_name_a_class() -> None:
    limits = OutputLimits()
    assert limits.parse(["replica 1kb 2 3"]) == {"slave": (1024, 2, 3)}
    for text, complaint in (
        ("normal 1 2", "Wrong number of arguments in buffer limit configuration."),
        ("other 1 2 3", "Invalid client class specified in buffer limit configuration."),
        ("normal a 2 3", "Error in hard, soft or soft_seconds setting"),
    ):
        with pytest.raises(ValueError, match=complaint):
            limits.parse([text])


@pytest.mark.parametrize(
    ("letters", "shown"),
    [
        ("KEA", "AKE"),
        ("Kg$", "g$K"),
        ("Kt", "tK"),
        ("KEg$lshztxednm", "g$lshzxetdnKEm"),
        ("KEAn", "AKE"),
        ("A", "A"),
        ("", ""),
    ],
)
def test_event_classes_come_back_in_redis_order(letters: str, shown: str) -> None:
    kind = EventClasses()
    assert kind.format(kind.parse([letters])) == shown


def test_an_unknown_event_class_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="Use 'Ag\\$lshzxeKEtmdnocaSTIV'"):
        EventClasses().parse(["KEA!"])


def test_addresses_have_ports() -> None:
    assert Addresses().parse(["eu.example:7001  [::1]:7002"]) == "eu.example:7001 [::1]:7002"
    assert Addresses().parse([""]) == ""
    for wrong in ("eu.example", "eu.example:", ":7001", "a:1 b", "a:port"):
        with pytest.raises(ValueError, match="an address is host:port"):
            Addresses().parse([wrong])
