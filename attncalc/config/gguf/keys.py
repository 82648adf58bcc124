"""The keys of a GGUF file that describe its model: 'llama.block_count' under its architecture's
name.
"""

from pathlib import Path
from typing import Any

from ...errors import AttncalcError
from ...units import count, truncate
from ..data_files import words
from .header import ArrayLength, GgufHeader

# The largest value that a key of the model may have.
LARGEST = 2**40
# The file with the keys of llama.cpp.
KNOWN_KEYS = Path(__file__).with_name("known_keys.txt")
_TIP = "convert the model again with a newer convert_hf_to_gguf.py"


class Keys:
    """The keys of one architecture, with checked types."""

    def __init__(self, header: GgufHeader) -> None:
        """Raise AttncalcError if the file does not name its architecture."""
        self.file = header.file  # what errors call the file
        self._metadata = header.metadata
        name = header.metadata.get("general.architecture")
        if not isinstance(name, str) or not name:
            raise AttncalcError(
                f"{self.file}: general.architecture is missing",
                "name the first file of the model, or fetch it again",
            )
        self.architecture = name

    def error(self, problem: str) -> AttncalcError:
        return AttncalcError(f"{self.file}: {problem}", _TIP)

    def check(self) -> None:
        """Raise AttncalcError if the file has a key of the architecture that llama.cpp does not
        have.
        """
        prefix = f"{self.architecture}."
        for key in self._metadata:
            name = key.removeprefix(prefix)
            if (
                key.startswith(prefix)
                and name not in words(KNOWN_KEYS)
                and not name.startswith("rope.")
            ):
                raise AttncalcError(
                    f"{self.file}: the key {truncate(key, 80)} is not one of llama.cpp's, and "
                    "may change the figures",
                    "give the config.json of the same model",
                )

    def _raw(self, key: str) -> Any:
        return self._metadata.get(f"{self.architecture}.{key}")

    def has(self, key: str) -> bool:
        """Return whether the file has a key of the architecture."""
        return self._raw(key) is not None

    def name(self, key: str) -> str:
        """Return a key's whole name: 'llama.block_count'."""
        return truncate(f"{self.architecture}.{key}", 80)

    def text(self, key: str) -> str:
        """Return a text that belongs to no architecture, as 'general.name'; '' without one."""
        value = self._metadata.get(key)
        if isinstance(value, str):
            return value
        return ""

    def number(self, key: str, default: int | None = None) -> int | None:
        """Return a whole number; the default if the key is missing. Raises AttncalcError for
        another value.
        """
        value = self._raw(key)
        if value is None:
            return default
        return self._checked(key, value)

    def required(self, key: str) -> int:
        """Return a whole number. Raises AttncalcError if it is missing."""
        value = self.number(key)
        if value is None:
            raise self.error(f"the key {self.name(key)} is missing")
        return value

    def flag(self, key: str) -> bool | None:
        """Return whether a key is true; None without it."""
        value = self._raw(key)
        if value is None:
            return None
        return bool(value)

    def per_layer(self, key: str, layers: int) -> list[int] | None:
        """Return one number per layer, from a list or from one number for all; None without the
        key.

        Raises AttncalcError if a list has another length.
        """
        value = self._raw(key)
        if value is None:
            return None
        if not isinstance(value, (list, ArrayLength)):
            number = self._checked(key, value)
            return [number for _ in range(layers)]
        if isinstance(value, ArrayLength) or len(value) < layers:
            length = value.length if isinstance(value, ArrayLength) else len(value)
            raise self.error(
                f"the key {self.name(key)} has {count(length)} values for {count(layers)} layers"
            )
        return [self._checked(key, item) for item in value[:layers]]

    def flags_per_layer(self, key: str, layers: int) -> list[bool] | None:
        """Return one flag per layer, from a list; None if the key is missing or a number."""
        is_list = isinstance(self._raw(key), (list, ArrayLength))
        if is_list:
            return [bool(item) for item in self.per_layer(key, layers) or ()]
        return None

    def _checked(self, key: str, value: Any) -> int:
        if isinstance(value, bool):
            return int(value)
        if not isinstance(value, int) or not 0 <= value <= LARGEST:
            raise self.error(
                f"the key {self.name(key)} is {truncate(value)}, and not a number from 0 on"
            )
        return value

    def vocabulary(self) -> int | None:
        """Return the number of its tokens: of the tokenizer, or the key vocab_size; None if the
        file has neither.
        """
        tokens = self._metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, ArrayLength):
            return tokens.length
        if isinstance(tokens, list) and tokens:
            return len(tokens)
        return self.number("vocab_size")
