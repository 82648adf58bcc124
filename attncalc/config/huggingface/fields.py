"""A config's fields under the names its class gives them, with the class's defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import AttncalcError
from ...units import truncate


class ConfigClass(NamedTuple):
    """What transformers' config class of a model_type says: its fields' defaults, which name stands for
    which, and the model_types of the configs inside it. language: it is a language model's, whole. fixed:
    those inside it that are of that model_type whatever they say.
    """

    defaults: Mapping[str, Any]
    synonyms: Mapping[str, str]
    inside: Mapping[str, str]
    language: bool
    fixed: Sequence[str] = ()


@cache
def config_classes() -> dict[str, ConfigClass]:
    """{model_type: ConfigClass} of every config class of transformers (tools/config_classes.py writes it)."""
    return {
        name: ConfigClass({synonyms.get(k, k): v for k, v in defaults.items()}, synonyms, *rest)
        for name, (defaults, synonyms, *rest) in _content()["classes"].items()
    }


def version() -> str:
    """The transformers whose classes these are."""
    return ".".join(_content()["transformers"].split(".")[:2])


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(__file__).with_name("classes.json").read_text(encoding="utf-8"))
    return content


class Fields(Mapping[str, Any]):
    """The fields of `given` and, where it leaves one out, its class's default; None where there is neither.

    around: the fields of the config that this one is inside of. layer: those of one layer, where
    `per_layer_config` gives it others.
    """

    def __init__(self, given: Mapping[str, Any], kind: ConfigClass, around: Fields | None = None) -> None:
        self._kind = kind
        self.given: dict[str, Any] = {}
        written: dict[str, str] = {}
        for name, value in given.items():
            own = kind.synonyms.get(name, name)
            if own in self.given and self.given[own] != value:
                said = f"{written[own]} {truncate(repr(self.given[own]))} and {name} {truncate(repr(value))}"
                raise AttncalcError(f"{said} contradict each other", "keep one of them")
            self.given[own] = value
            written[own] = name
        self.around = around

    def own(self, name: str) -> str:
        """The name its class has for `name`."""
        return self._kind.synonyms.get(name, name)

    def layer(self, i: int) -> Fields:
        """The fields of layer i, from 0: per_layer_config says which differ, as {"5": {...}} or {"05": {...}}."""
        apart = self.given.get("per_layer_config")
        own = {int(key): value for key, value in apart.items()}.get(i) if apart else None
        return Fields({**self.given, **own}, self._kind, self.around) if own else self

    def __getitem__(self, name: str) -> Any:
        own = self.own(name)
        return self.given[own] if own in self.given else self._kind.defaults.get(own)

    def __iter__(self) -> Iterator[str]:
        return iter({**self._kind.defaults, **self.given})

    def __len__(self) -> int:
        return len({**self._kind.defaults, **self.given})

    def default(self, name: str) -> Any:
        """What the class says where the config says nothing."""
        return self._kind.defaults.get(name)

    def is_default(self, name: str) -> bool:
        """The config says what the class says anyway; null, false, 0 and none of a list are alike."""
        given, default = self.given.get(name), self.default(name)
        return bool(given == default or not (given or default))

    def is_of_class(self, name: str) -> bool:
        """The class has a field of that name."""
        return name in self._kind.defaults
