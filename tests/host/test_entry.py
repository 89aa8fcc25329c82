import io

import pytest
from hypothesis import given, strategies as st

from cutepy.host.entry import DamagedEntryError, Entry, decode, encode, read_metadata

KEY = "5f" * 32
ENTRY = Entry(
    {"function": "gemm", "options": {"opt-level": 3}, "fingerprint": [["source", "ab"], ["arch", "cd"]], "x": None},
    {"object": bytes(range(256)) * 4, "ptx": b".version 8.0\n" * 50, "empty": b""},
)
DATA = encode(KEY, ENTRY)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(), JSON, max_size=3), st.dictionaries(st.text(), st.binary(), max_size=4))
def test_what_is_written_is_read(metadata, sections):
    entry = Entry(metadata, sections)
    data = encode(KEY, entry)
    read = decode(KEY, data)
    assert read == entry
    assert list(read.sections) == list(sections)
    assert all(type(section) is bytes for section in read.sections.values())
    assert read_metadata(io.BytesIO(data)) == metadata


def test_text_is_compressed_and_binaries_are_not():
    text, binary = b".reg .b32 %r<9>;\n" * 1000, b"\0" * 17_000
    assert len(encode(KEY, Entry({}, {"ptx": text}))) < 1000
    assert binary in encode(KEY, Entry({}, {"object": binary}))


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_a_changed_byte_is_found(position, change):
    damaged = bytearray(DATA)
    damaged[position] ^= change
    with pytest.raises(DamagedEntryError):
        decode(KEY, bytes(damaged))


def test_every_truncation_is_found():
    for length in range(len(DATA)):
        with pytest.raises(DamagedEntryError):
            decode(KEY, DATA[:length])


@given(st.binary(max_size=200))
def test_bytes_of_another_kind_are_found(data):
    for candidate in (data, DATA + data + b"."):
        with pytest.raises(DamagedEntryError):
            decode(KEY, candidate)


@pytest.mark.parametrize(
    ("key", "data", "reason"),
    [
        ("5e" * 32, DATA, f"it is the entry of key {KEY}"),
        (KEY, DATA[:6] + b"\1" + DATA[7:], "it is of format 1, and this cutepy reads format 2"),
        (KEY, b"ELF" + DATA, "it does not begin as an entry does"),
        (KEY, b"", "it ends after 0 bytes"),
        (KEY, DATA[:-1], "checksum mismatch"),
    ],
)
def test_the_reason_is_told(key, data, reason):
    with pytest.raises(DamagedEntryError) as caught:
        decode(key, data)
    assert str(caught.value) == reason


@given(st.binary(max_size=200) | st.integers(0, len(DATA)).map(lambda end: DATA[:end]))
def test_metadata_of_anything_is_read_or_refused(data):
    try:
        metadata = read_metadata(io.BytesIO(data))
    except DamagedEntryError:
        return
    assert metadata == ENTRY.metadata


@pytest.mark.parametrize("index", [b"[]", b"{}", b'{"metadata": 1}', b"\xff", b"{"])
def test_an_index_without_metadata_is_refused(index):
    data = DATA[:40] + len(index).to_bytes(8, "little") + index
    with pytest.raises(DamagedEntryError):
        read_metadata(io.BytesIO(data))


@pytest.mark.parametrize("value", [(1, 2), {1: "a"}, float("nan"), b"bytes", {1}, object()])
def test_metadata_that_json_would_change_is_refused(value):
    with pytest.raises((TypeError, ValueError), match=r"JSON"):
        encode(KEY, Entry({"value": value}, {}))


def test_sections_stay_out_of_the_repr():
    entry = Entry({"function": "gemm"}, {"object": b"\0" * 300, "ptx": b"ret;"})
    assert repr(entry) == "Entry({'function': 'gemm'}, {'object': 300 bytes, 'ptx': 4 bytes})"
    assert repr(decode(KEY, encode(KEY, entry))) == repr(entry)
