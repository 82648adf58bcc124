"""The limits of a GGUF header, at each limit and one beyond, and the names of files in several
parts.
"""

import itertools
import struct
from pathlib import Path

import pytest
from asking import refusal
from gguf_files import Bytes
from tables import each

from attncalc import AttncalcError
from attncalc.config.gguf import files
from attncalc.config.gguf.files import (
    gguf_file,
    gguf_models,
    local_gguf,
    local_sources,
    model_name,
    quantizations,
    shard_names,
)
from attncalc.config.gguf.header import ArrayLength, Cursor, read_header, read_headers

MAX_TENSORS, MAX_KEYS, MAX_TEXTS, MAX_ARRAY = 100_000, 1_000, 2_097_152, 2_000
FIRST_READ, LIMIT = 1 << 20, 32 << 20
F32, F16, Q4_K = 0, 1, 12
UINT32, FLOAT32, STRING, ARRAY = 4, 6, 8, 9


class Zeros:
    """An endless file, which may answer with more bytes than it was asked for."""

    def __init__(self, more: int = 0) -> None:
        self.name, self.size, self.more = "zeros.gguf", None, more
        self.reads: list[tuple[int, int]] = []

    size: int | None

    def read(self, start: int, end: int) -> bytes:
        self.reads.append((start, end))
        return bytes(end - start + self.more)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: bytes, shape: tuple[int, ...], kind: int = F32, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def header(*tensors: bytes, keys: tuple[bytes, ...] = (), tensors_said: int | None = None) -> bytes:
    n_tensors = len(tensors) if tensors_said is None else tensors_said
    return b"GGUF" + struct.pack("<IQQ", 3, n_tensors, len(keys)) + b"".join((*keys, *tensors))


def error(content: bytes, size: int | None = None) -> str:
    return refusal(read_header, Bytes(content, size)).message.removeprefix("memory.gguf: ")


ENDS = "the file ends in its header"


@each(
    ("content", "message"),
    [
        (header(tensors_said=MAX_TENSORS), ENDS),
        (header(tensors_said=MAX_TENSORS + 1), "100,001 tensors, more than 100,000"),
        (b"GGUF" + struct.pack("<IQQ", 2, 0, MAX_KEYS), ENDS),
        (b"GGUF" + struct.pack("<IQQ", 2, 0, MAX_KEYS + 1), "1,001 keys"),
        (header(keys=(struct.pack("<Q", 65_535),)), ENDS),
        (header(keys=(struct.pack("<Q", 65_536),)), "a key of 65,536 bytes"),
        (header(keys=(struct.pack("<Q", 1),)), ENDS),
        (header(keys=(struct.pack("<Q", 0),)), "a key of 0 bytes"),
        (header(struct.pack("<Q", 63)), ENDS),
        (header(struct.pack("<Q", 64)), "the name of a tensor of 64 bytes"),
        (header(text(b"t") + struct.pack("<I", 4)), ENDS),
        (header(text(b"t") + struct.pack("<I", 5)), "the tensor t has 5 dimensions"),
        (header(keys=(key(b"k", ARRAY, struct.pack("<IQ", STRING, MAX_TEXTS)),)), ENDS),
        (
            header(keys=(key(b"k", ARRAY, struct.pack("<IQ", STRING, MAX_TEXTS + 1)),)),
            "texts, more than 2,097,152",
        ),
    ],
)
def test_a_number_at_its_limit_is_read_on_and_one_beyond_is_an_error(
    content: bytes, message: str
) -> None:
    assert message in error(content)


def test_the_limits_of_one_file_are_those_of_all() -> None:
    """Two headers, each with an architecture, of which only the first is kept."""
    parts = [
        Bytes(header(tensor(name, (1,)), keys=(key(b"general.architecture", STRING, text(b"x")),)))
        for name in (b"a", b"b")
    ]
    first, second = read_headers(parts)
    assert (first.metadata, second.metadata) == ({"general.architecture": "x"}, {})
    half = key(b"k", ARRAY, struct.pack("<IQ", UINT32, LIMIT // 8) + bytes(LIMIT // 2))
    # what the first has left
    with pytest.raises(AttncalcError, match="a header of more than 16,77"):
        read_headers([Bytes(header(keys=(half,)))] * 2)
    with pytest.raises(AttncalcError, match="100,000 tensors, more than 99,999"):
        read_headers([parts[0], Bytes(header(tensors_said=MAX_TENSORS))])


@pytest.mark.parametrize("length", [MAX_ARRAY, MAX_ARRAY + 1])
def test_numbers_of_longer_arrays_are_skipped(length: int) -> None:
    numbers = struct.pack("<IQ", UINT32, length) + struct.pack(f"<{length}I", *range(length))
    after = key(b"after", UINT32, struct.pack("<I", 7))
    metadata = read_header(Bytes(header(keys=(key(b"k", ARRAY, numbers), after)))).metadata
    assert metadata == {
        "k": list(range(length)) if length == MAX_ARRAY else ArrayLength(length),
        "after": 7,
    }


@pytest.mark.parametrize("length", [0, 5, 4096, 4097])
def test_a_text_of_more_than_4_kib_is_skipped(length: int) -> None:
    after = key(b"after", UINT32, struct.pack("<I", 7))
    metadata = read_header(
        Bytes(header(keys=(key(b"k", STRING, text(b"x" * length)), after)))
    ).metadata
    assert metadata == {"k": "x" * length if length <= 4096 else "", "after": 7}


@pytest.mark.parametrize("texts", [[], [b"a"], [b"", b"abc", b"d"]])
def test_of_texts_only_their_number_is_kept(texts: list[bytes]) -> None:
    array = struct.pack("<IQ", STRING, len(texts)) + b"".join(map(text, texts))
    after = key(b"after", UINT32, struct.pack("<I", 7))
    metadata = read_header(Bytes(header(keys=(key(b"k", ARRAY, array), after)))).metadata
    assert metadata == {"k": ArrayLength(len(texts)), "after": 7}


@pytest.mark.parametrize("alignment", [1, 2, 8, 32, 1 << 20])
def test_tensors_start_at_multiples_of_the_alignment(alignment: int) -> None:
    size = -(-12 // alignment) * alignment  # 3 elements of 4 bytes
    given = (
        ()
        if alignment == 32
        else (key(b"general.alignment", UINT32, struct.pack("<I", alignment)),)
    )
    content = header(tensor(b"a", (3,)), tensor(b"b", (1,), offset=size), keys=given)
    read = read_header(Bytes(content))
    assert read.data_start == -(-len(content) // alignment) * alignment
    assert [(t.offset, t.size, t.elements) for t in read.tensors] == [(0, 12, 3), (size, 4, 1)]
    for offset in (0, size - 1, size + 1):
        assert "and not where the one before it ends" in error(
            header(tensor(b"a", (3,)), tensor(b"b", (1,), offset=offset), keys=given)
        )


@pytest.mark.parametrize("alignment", [0, 3, 6, 33, (1 << 20) - 1, 1 << 21])
def test_another_alignment_is_an_error(alignment: int) -> None:
    content = header(keys=(key(b"general.alignment", UINT32, struct.pack("<I", alignment)),))
    assert error(content) == f"general.alignment is {alignment}, and not a power of two"


def test_an_alignment_of_another_type_is_an_error() -> None:
    content = header(keys=(key(b"general.alignment", FLOAT32, struct.pack("<f", 32)),))
    assert error(content) == "general.alignment is 32.0, and not a power of two"


@each(
    ("shape", "kind", "message"),
    [
        ((), F32, ""),
        ((1,), F32, ""),
        ((1, 1, 1, 1), F32, ""),
        ((2**62,), F16, ""),
        ((2**61, 2, 1), F16, ""),
        ((0,), F32, "has the shape [0]"),
        ((4, 0), F32, "has the shape [4, 0]"),
        ((2**62, 2), F16, "has the shape"),
        ((2**63, 0), F16, "has the shape"),
        ((2**40, 2**40), F16, "has the shape"),
        ((2**63,), F16, "has the shape"),
        ((2**64 - 1,), F16, "has the shape"),
        ((256, 3), Q4_K, ""),
        ((512,), Q4_K, ""),
        ((3, 256), Q4_K, "has rows of 3 elements, which Q4_K cannot store in blocks of 256"),
        ((), Q4_K, "has rows of 1 elements, which Q4_K cannot store in blocks of 256"),
    ],
)
def test_a_tensor_has_a_possible_shape(shape: tuple[int, ...], kind: int, message: str) -> None:
    content = header(tensor(b"t", shape, kind))
    if message:
        assert f"the tensor t {message}" in error(content)
    else:
        assert read_header(Bytes(content)).tensors[0].shape == shape


def test_a_file_ends_with_its_last_tensor_or_later() -> None:
    content = header(tensor(b"a", (9,)), tensor(b"b", (3,), offset=64))
    end = -(-len(content) // 32) * 32 + 64 + 12
    for size in (end, end + 1):
        assert len(read_header(Bytes(content, size)).tensors) == 2
    assert error(content, end - 1) == "1 bytes shorter than its header describes"
    assert error(content, end - 12) == "12 bytes shorter than its header describes"


def test_a_file_without_tensors_may_end_with_its_header() -> None:
    content = header()
    assert read_header(Bytes(content, len(content))).data_start == 32


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (0, "version 0 of GGUF is not known; known: 2 and 3"),
        (1, "version 1 of GGUF, which llama.cpp reads no longer"),
        (2, ""),
        (3, ""),
        (4, "version 4 of GGUF is not known; known: 2 and 3"),
        (2 << 24, "a big-endian file, which llama.cpp reads on big-endian machines only"),
        (1 << 16, "a big-endian file, which llama.cpp reads on big-endian machines only"),
        ((1 << 16) + 1, "version 65,537 of GGUF is not known; known: 2 and 3"),
        (1 << 15, "version 32,768 of GGUF is not known; known: 2 and 3"),
    ],
)
def test_llama_cpp_reads_two_versions(version: int, message: str) -> None:
    content = b"GGUF" + struct.pack("<IQQ", version, 0, 0)
    assert error(content) == message if message else read_header(Bytes(content)).version == version


@pytest.mark.parametrize("magic", [b"GGUE", b"GGUG", b"GGU\0", b"\xffGUF"])
def test_a_file_with_another_beginning_is_not_read(magic: bytes) -> None:
    assert (
        error(magic + struct.pack("<IQQ", 3, 0, 0))
        == "not a GGUF file: it does not start with 'GGUF'"
    )


@each(
    ("kind", "form", "value"),
    [
        (0, "B", 255),
        (1, "b", -1),
        (2, "H", 65535),
        (3, "h", -2),
        (4, "I", 2**32 - 1),
        (5, "i", -3),
        (6, "f", 0.5),
        (7, "?", True),
        (10, "Q", 2**64 - 1),
        (11, "q", -4),
        (12, "d", 0.1),
    ],
)
def test_numbers_have_the_types_of_gguf(kind: int, form: str, value: float) -> None:
    """The numbers of the types are those of enum gguf_type in ggml/include/gguf.h."""
    content = struct.pack(f"<{form}", value)
    array = struct.pack("<IQ", kind, 2) + 2 * content
    metadata = read_header(
        Bytes(header(keys=(key(b"one", kind, content), key(b"two", ARRAY, array))))
    ).metadata
    assert metadata == {"one": value, "two": [value, value]}


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        (13, b"", "the key k has the unknown type 13"),
        (ARRAY, struct.pack("<IQ", 13, 0), "the key k has an array of the unknown type 13"),
        (ARRAY, struct.pack("<IQ", ARRAY, 0), "the key k has an array of arrays"),
    ],
)
def test_a_key_of_another_type_is_an_error(kind: int, content: bytes, message: str) -> None:
    assert error(header(keys=(key(b"k", kind, content),))) == message


def test_what_is_given_twice_is_an_error() -> None:
    number = key(b"k", UINT32, struct.pack("<I", 7))
    assert error(header(keys=(number, number))) == "the key k is given twice"
    twice = header(tensor(b"t", (8,)), tensor(b"t", (8,), offset=32))
    assert error(twice) == "the tensor t is given twice"


def test_a_tensor_of_an_unknown_type_is_an_error() -> None:
    # Q4_2
    assert (
        error(header(tensor(b"t", (1,), 4)))
        == "the tensor t has the type 4, which ggml does not have"
    )


# The cursor


@pytest.mark.parametrize("size", [FIRST_READ, FIRST_READ + 1])
def test_bytes_are_read_only_when_they_are_needed(size: int) -> None:
    source = Zeros()
    cursor = Cursor(source)
    assert cursor.take(0) == 0
    assert source.reads == []
    cursor.take(1)
    assert cursor.content(size - 1) == bytes(size - 1)
    assert (
        source.reads == [(0, FIRST_READ), (FIRST_READ, 2 * FIRST_READ)][: 1 + (size > FIRST_READ)]
    )
    assert cursor.position == size


def test_a_long_read_has_the_bytes_that_it_needs() -> None:
    source = Zeros()
    Cursor(source).take(5 * FIRST_READ)
    assert source.reads == [(0, 5 * FIRST_READ)]


def test_more_bytes_than_were_asked_for_are_left_out() -> None:
    source = Zeros(more=5)
    cursor = Cursor(source)
    cursor.take(1)
    cursor.take(FIRST_READ)
    cursor.take(FIRST_READ)
    assert source.reads == [
        (start, end) for start, end in itertools.pairwise(n * FIRST_READ for n in (0, 1, 2, 4))
    ]


def test_a_header_may_have_as_many_bytes_as_the_limit() -> None:
    source = Zeros()
    cursor = Cursor(source)
    cursor.take(LIMIT)
    assert source.reads == [(0, LIMIT)]
    with pytest.raises(AttncalcError, match="a header of more than 33,554,432 bytes"):
        cursor.take(1)


def test_no_read_goes_beyond_the_limit() -> None:
    source = Zeros()
    cursor = Cursor(source)
    cursor.take(LIMIT - 1)
    cursor.take(1)
    assert source.reads[-1][1] == LIMIT


@pytest.mark.parametrize("size", [7, None])
def test_a_file_that_ends_early_is_an_error(size: int | None) -> None:
    cursor = Cursor(Bytes(b"1234567", size))
    assert cursor.content(7) == b"1234567"
    with pytest.raises(AttncalcError, match=ENDS):
        cursor.take(1)


@each("length", [0, 1, 1000, FIRST_READ - 8, FIRST_READ - 7, FIRST_READ, 3 * FIRST_READ])
@each("before", [0, 1, 8, FIRST_READ - 17, FIRST_READ - 12, FIRST_READ - 8])
def test_texts_are_skipped_wherever_a_read_ends(before: int, length: int) -> None:
    texts = [b"ab", b"x" * length, b"", b"abc"]
    content = bytes(before) + b"".join(map(text, texts)) + b"end"
    cursor = Cursor(Bytes(content))
    cursor.take(before)
    cursor.skip_texts(len(texts))
    assert cursor.position == len(content) - 3
    assert cursor.content(3) == b"end"


@pytest.mark.parametrize("known", [0, 1, 7, 8])
def test_the_last_text_may_end_with_the_file(known: int) -> None:
    """Of the 8 bytes of its length, `known` are read with what is before it."""
    content = bytes(FIRST_READ - known) + text(b"")
    cursor = Cursor(Bytes(content))
    cursor.take(FIRST_READ - known)
    cursor.skip_texts(1)
    assert cursor.position == len(content)


def test_a_text_that_ends_after_the_file_is_an_error() -> None:
    cursor = Cursor(Bytes(text(b"abc")[:-1]))
    with pytest.raises(AttncalcError, match=ENDS):
        cursor.skip_texts(1)


# Names of files


@pytest.mark.parametrize(
    ("name", "files"),
    [("a-00001-of-00001.gguf", 1), ("a-00002-of-00002.GGUF", 2), ("a-00001-of-01000.gguf", 1000)],
)
def test_a_numbered_file_stands_for_all(name: str, files: int) -> None:
    names = shard_names(name)
    assert len(names) == files
    assert name in names
    assert names[0] == f"a-00001-of-{files:05}{name[-5:]}"


@pytest.mark.parametrize(
    "name",
    [
        "a-00000-of-00002.gguf",
        "a-00003-of-00002.gguf",
        "a-00001-of-01001.gguf",
        "a-1-of-2.gguf",
        "-00001-of-00002.gguf",
    ],
)
def test_another_name_stands_for_itself(name: str) -> None:
    assert shard_names(name) == [name]


def test_a_model_is_called_by_its_file() -> None:
    assert model_name("a-Q8_0.gguf") == "a-Q8_0"
    assert model_name("a.GGUF") == "a"
    assert model_name("a-00001-of-00002.gguf") == "a"
    assert model_name("a.gguf.part") == "a.gguf.part"


def write(folder: Path, *names: str, content: bytes = b"GGUF") -> None:
    for name in names:
        (folder / name).write_bytes(content)


def test_only_gguf_files_and_their_folders_lead_to_a_model(tmp_path: Path) -> None:
    write(tmp_path, "a.gguf", "b", content=b"GGUF\x03")
    write(tmp_path, "c.GGUF", "d", content=b"GGU")
    assert [
        local_gguf(str(tmp_path / name)) is not None
        for name in ["a.gguf", "b", "c.GGUF", "d", "none"]
    ] == [True, True, True, False, False]
    assert local_gguf("") is None
    assert local_gguf("a\0b") is None


@pytest.mark.parametrize("beside", ["config.json", "m.yaml", "m.yml"])
def test_a_config_or_model_file_in_a_folder_goes_first(tmp_path: Path, beside: str) -> None:
    write(tmp_path, "a.gguf")
    assert local_gguf(str(tmp_path)) == tmp_path / "a.gguf"
    write(tmp_path, beside)
    assert local_gguf(str(tmp_path)) is None


def test_the_parts_of_one_model_in_a_folder_are_one(tmp_path: Path) -> None:
    write(tmp_path, "a-00002-of-00002.gguf", "ggml-vocab-b.gguf", "notes.txt")
    first = tmp_path / "a-00001-of-00002.gguf"
    assert local_gguf(str(tmp_path)) == first
    with pytest.raises(
        AttncalcError, match=r"1 of its 2 files are missing, such as a-00001-of-00002\.gguf"
    ):
        local_sources(first)
    write(tmp_path, first.name)
    assert [source.path.name for source in local_sources(first)] == [
        first.name,
        "a-00002-of-00002.gguf",
    ]


def test_a_folder_is_searched_without_the_names_of_all_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 empty files of 1,000 each would be 60,000 names."""
    write(tmp_path, *(f"x{i:02}-00007-of-01000.gguf" for i in range(60)))
    monkeypatch.setattr(files, "shard_names", None)
    with pytest.raises(AttncalcError, match=r"60 GGUF models: x00-00001-of-01000\.gguf"):
        local_gguf(str(tmp_path))


def test_a_folder_without_models_is_left_to_the_reader(tmp_path: Path) -> None:
    assert local_gguf(str(tmp_path)) is None
    write(tmp_path, "notes.txt")
    assert local_gguf(str(tmp_path)) is None


def test_no_name_is_not_the_present_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.gguf")
    monkeypatch.chdir(tmp_path)
    assert local_gguf(".") == Path("a.gguf")
    assert local_gguf("") is None


def test_a_name_that_is_too_long_for_a_file_is_left_to_the_reader() -> None:
    assert local_gguf("a" * 5000) is None


def test_the_first_of_several_missing_files_is_named(tmp_path: Path) -> None:
    write(tmp_path, "a-00001-of-00003.gguf")
    with pytest.raises(
        AttncalcError, match=r"2 of its 3 files are missing, such as a-00002-of-00003\.gguf"
    ):
        local_sources(tmp_path / "a-00001-of-00003.gguf")


@pytest.mark.parametrize(
    ("number", "listed"), [(5, "e.gguf"), (6, "e.gguf, ..."), (7, "e.gguf, ...")]
)
def test_a_folder_with_many_models_lists_five(tmp_path: Path, number: int, listed: str) -> None:
    write(tmp_path, *(f"{letter}.gguf" for letter in "abcdefg"[:number]))
    error = refusal(local_gguf, str(tmp_path))
    assert error.message.endswith(
        f"the folder has {number} GGUF models: a.gguf, b.gguf, c.gguf, d.gguf, {listed}"
    )


def test_a_missing_file_of_its_own_is_left_to_the_reader(tmp_path: Path) -> None:
    with pytest.raises(AttncalcError, match="no such file"):
        local_sources(tmp_path / "a.gguf")


def test_projectors_and_later_parts_are_no_models() -> None:
    names = [
        "mmproj-a.gguf",
        "b-00002-of-00002.gguf",
        "b-00001-of-00002.gguf",
        "x/mtp-c.gguf",
        "a.GGUF",
        "a.bin",
    ]
    assert gguf_models(names) == ["a.GGUF", "b-00001-of-00002.gguf"]
    assert gguf_models(["mmproj-folder/a.gguf"]) == ["mmproj-folder/a.gguf"]


@each(
    ("wanted", "names", "file"),
    [
        ("", ["a-Q8_0.gguf", "a-Q4_K_M.gguf"], "a-Q4_K_M.gguf"),
        ("", ["a-Q2_K.gguf", "a-Q8_0.gguf"], "a-Q8_0.gguf"),
        ("", ["b-Q3_K.gguf", "a-Q2_K.gguf"], "a-Q2_K.gguf"),
        ("", [], None),
        ("q3_k", ["b-Q3_K.gguf", "a-Q2_K.gguf"], "b-Q3_K.gguf"),
        ("Q5_0", ["b-Q3_K.gguf"], None),
        (".*", ["b-Q3_K.gguf"], None),
        ("Q4_0", ["a-IQ4_0.gguf", "a-UD-Q4_0.gguf", "a-Q4_0.gguf"], "a-Q4_0.gguf"),
        ("A.GGUF", ["b.gguf", "a.gguf"], "a.gguf"),
        ("b.gguf", ["b.gguf", "a.gguf"], "b.gguf"),
        ("Q3_K", ["r-Q2_K.gguf", "s-Q3_K.gguf"], "s-Q3_K.gguf"),
        ("Q8_0", ["c-Q8_0.gguf", "b-Q8_0.gguf", "a-Q8_0.gguf"], "a-Q8_0.gguf"),
        ("F16", ["a-BF16.gguf"], None),
        ("F16", ["a-BF16.gguf", "a-F16.gguf"], "a-F16.gguf"),
        ("Q4_K_M", ["Q4_K_M/a-00001-of-00002.gguf"], None),
        ("Q4_K_M", ["x/a-Q4_K_M-00001-of-00002.gguf"], "x/a-Q4_K_M-00001-of-00002.gguf"),
    ],
)
def test_a_quantization_means_a_file(wanted: str, names: list[str], file: str | None) -> None:
    assert gguf_file(names, wanted) == file


def test_quantizations_are_listed_once() -> None:
    names = [
        "a-Q4_K_M.gguf",
        "b-Q4_K_M.gguf",
        "c-UD-IQ1_S-00001-of-00002.gguf",
        "d.gguf",
        "e.BF16.gguf",
        "mmproj-F16.gguf",
    ]
    assert quantizations(names) == ["Q4_K_M", "UD-IQ1_S", "BF16"]
