"""config.json files of releases, as they are: parameters and KV cache equal those established for
each.

tests/data/real-configs.json has 68 files without their quantization, which tests/data/quantized
has. The figures are those of transformers' own class on the meta device, or the published count.
The cache is that of 4,096 tokens in the released dtype.
"""

import json
from pathlib import Path
from typing import Any

from tables import each

from attncalc import Workload, params
from attncalc.config.build import build_model
from attncalc.config.huggingface import convert_config
from attncalc.cost.cache import kv_cache
from attncalc.model import ModelSpec

FILES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "real-configs.json").read_text("utf-8")
)


def engine_of(model: ModelSpec) -> str:
    """Return the engine of the established figures: transformers, which keeps all columns of a
    convolution.
    """
    has_states = any(
        spec.per == "sequence" for layers in model.main.layers for spec in layers.cache()
    )
    return "transformers" if has_states else "ideal"


@each("entry", FILES)
def test_a_released_config_has_the_established_figures(entry: dict[str, Any]) -> None:
    model = build_model(
        convert_config(entry["config"], "config.json", title=entry["name"]), entry["name"]
    )
    assert params(model).total == entry["params"]
    cache = (
        kv_cache(model, Workload.decode(1, 4096), engine_name=engine_of(model)).total
        if model.main.has_cache
        else 0
    )
    assert cache == entry["kv_4096"]
