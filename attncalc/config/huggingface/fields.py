"""A config's fields under the names its class gives them, with the class's defaults; it knows what was read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


class ConfigClass(NamedTuple):
    """What transformers' config class of a model_type says: its fields' defaults, which name stands for
    which, and the model_types of the configs inside it.
    """

    defaults: Mapping[str, Any]
    synonyms: Mapping[str, str]
    inside: Mapping[str, str]


@cache
def config_classes() -> dict[str, ConfigClass]:
    """{model_type: ConfigClass} of every config class of transformers (tools/config_classes.py writes it)."""
    content = json.loads(Path(__file__).with_name("classes.json").read_text(encoding="utf-8"))
    return {
        name: ConfigClass({synonyms.get(k, k): v for k, v in defaults.items()}, synonyms, inside)
        for name, (defaults, synonyms, inside) in content["classes"].items()
    }


class Fields(Mapping[str, Any]):
    """The fields of `given` and, where it leaves one out, its class's default; None where there is neither.

    around: the fields of the config that this one is inside of. layer: those of one layer, where
    `per_layer_config` gives it others.
    """

    def __init__(self, given: Mapping[str, Any], kind: ConfigClass, around: Fields | None = None) -> None:
        self._kind = kind
        self.given = {kind.synonyms.get(name, name): value for name, value in given.items()}
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

    def is_default(self, name: str) -> bool:
        """The config says what the class says anyway, or nothing."""
        return self.given.get(name) in (None, self._kind.defaults.get(name))

    def is_of_class(self, name: str) -> bool:
        """The class has a field of that name."""
        return name in self._kind.defaults
