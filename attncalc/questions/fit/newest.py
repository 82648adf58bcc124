"""The years in which the built-in models were released: a list of models that fit has the newest
first.
"""

# The models of a year, by the starts of their names; the longest start decides. The sources are
# those of each preset.
_YEARS = {
    2026: "deepseek-v4 gemma4 glm-5 hy4 inkling kimi-k3 mimo-v2.5 minimax-m2.5 minimax-m3 "
    "nemotron3-super qwen3.5 qwen3.6 qwen3.8",
    2025: "deepseek-r1 deepseek-v3.2 falcon-h1 gemma3 glm-4 gpt-oss granite3 granite4 "
    "kimi-k2 kimi-linear llama4 mimo-v2 minimax-m1 mistral-small nemotron-h nemotron3 olmo3 "
    "phi-4-mini qwen3 smollm3",
    2024: "command-r7b deepseek-v2 deepseek-v3 gemma-2b gemma2 jamba llama3 mamba2 mistral-7b-v0.3 "
    "mistral-large mistral-nemo mixtral-8x22b olmo2 phi-3 phi-4 qwen2.5 smollm2",
    2023: "falcon-7b llama2 mistral-7b mixtral-8x7b whisper yi",
    2020: "gpt3",
    2019: "gpt2 t5",
    2017: "transformer",
}
_YEAR_OF = {start: year for year, starts in _YEARS.items() for start in starts.split()}


def released_in(name: str) -> int:
    """Return the year in which a built-in model was released; 0 for another model."""
    starts = [start for start in _YEAR_OF if name.startswith(start)]
    if not starts:
        return 0
    return _YEAR_OF[max(starts, key=len)]
