"""GPUs: published figures, what a file may contain, names, and the screens of `attncalc gpus`."""

import json
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest
import yaml
from asking import Ask, refusal, results
from tables import each

from attncalc import AttncalcError
from attncalc.config.gpus import gpu, gpu_names, gpu_with, gpus_of, schema
from attncalc.hardware import Gpu
from attncalc.questions.schemas import schema_name
from attncalc.units import DTYPES

REPOSITORY = Path(__file__).parent.parent
GPUS = REPOSITORY / "presets/gpus"
# GPUs that must not disappear. A new GPU need not be added here.
REQUIRED = {
    "a100-40gb",
    "a100-80gb",
    "a100-80gb-pcie",
    "h100-80gb",
    "h100-pcie",
    "h100-nvl",
    "h200",
    "h20",
    "b200",
    "b300",
    "gb200",
    "l4",
    "l40",
    "l40s",
    "a10",
    "a10g",
    "a30",
    "a40",
    "t4",
    "v100-16gb",
    "v100-32gb",
    "rtx-3090",
    "rtx-4090",
    "rtx-5090",
    "rtx-a6000",
    "rtx-6000-ada",
    "rtx-pro-6000",
    "mi250x",
    "mi300x",
    "mi325x",
    "mi355x",
    "gaudi3",
    "tpu-v5e",
    "tpu-v5p",
    "tpu-v6e",
    "rtx-3060-12gb",
    "rtx-3080-10gb",
    "rtx-3080-ti",
    "rtx-4060-ti-16gb",
    "rtx-4070",
    "rtx-4080-super",
    "rtx-2080-ti",
    "rtx-4090-laptop",
    "rtx-5070-ti",
    "rtx-5060-ti-8gb",
    "p100-16gb",
    "p40",
    "rx-9070-xt",
    "w7900",
    "arc-b580",
    "m2-ultra-192gb",
    "m3-max-128gb",
    "m4-max-128gb",
    "m3-ultra-512gb",
    "gb10",
}
TERA = 10**12
MINE = """\
title: My GPU
vendor: me
sources: [a test]
memory_gb: 10
bandwidth: 1000000000000
flops: {bf16: 100000000000000}
"""


def mine(tmp_path: Path, more: str = "", without: str = "") -> Gpu:
    """Return the GPU of a file with lines added, or without the line of one key."""
    file = tmp_path / "mine.yaml"
    lines = [line for line in MINE.splitlines() if not (without and line.startswith(f"{without}:"))]
    file.write_text("\n".join([*lines, more]) + "\n")
    return gpu(file)


def test_the_schema_knows_every_dtype_that_has_flops() -> None:
    known = (name for name, dtype in DTYPES.items() if dtype.group is None)
    assert [*schema()["properties"]["flops"]["properties"]] == [
        *known,
        "tf32",
        "fp4",
        "int8",
        "int4",
    ]


def test_required_gpus_exist() -> None:
    assert set(gpu_names()) >= REQUIRED


@each("name", gpu_names())
def test_a_gpu_names_its_schema_and_is_valid(name: str) -> None:
    text = (GPUS / f"{name}.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=../gpu.schema.json\n")
    data = yaml.safe_load(text)
    jsonschema.validate(data, schema())


@each("name", gpu_names())
def test_software_sees_most_of_the_memory_and_not_more(name: str) -> None:
    """Metal's limit is two thirds of 16 GiB, 11.45 of 16 * 10^9 bytes."""
    spec = gpu(name)
    least = 7 / 10 if spec.vendor == "Apple" else 3 / 4
    assert spec.memory_gb * 10**9 * least <= spec.memory <= spec.memory_gb * 2**30


@each("name", gpu_names())
def test_narrower_dtypes_are_never_slower(name: str) -> None:
    """Each halving of the width at most doubles the speed; a figure with sparsity among dense ones
    would fail.
    """
    speeds = dict(gpu(name).flops)
    chain = [speeds[d] for d in ("tf32", "bf16", "fp8", "fp4") if d in speeds]
    for wide, narrow in pairwise(chain):
        assert wide <= narrow <= 4 * wide + TERA
    if "bf16" in speeds:
        assert speeds["fp16"] == speeds["bf16"] if "fp16" in speeds else name.startswith("tpu")
    if "bf16" in speeds and "fp8" in speeds:
        assert speeds["fp8"] <= 2.03 * speeds["bf16"]  # 733 / 362.05: NVIDIA rounds


# Dense figures in TFLOP/s, as the vendors publish them, or half of the published figure with
# sparsity.
PUBLISHED = [
    ("h100-80gb", "bf16", 989.4),
    ("h100-80gb", "fp8", 1978.9),
    ("h100-pcie", "bf16", 756),  # 1,513 / 2
    ("a100-80gb", "bf16", 312),
    ("l4", "bf16", 121),  # 242 / 2
    ("l40s", "fp8", 733),
    ("a10", "bf16", 125),
    ("t4", "fp16", 65),
    ("v100-16gb", "fp16", 125),
    ("rtx-4090", "bf16", 165.2),
    ("b200", "fp4", 9000),  # HGX B200: 72 PFLOPS dense / 8
    ("b300", "fp4", 13500),  # HGX B300: 108 PFLOPS dense / 8
    ("gb200", "bf16", 2500),  # NVL72: 360 PFLOPS with sparsity / 2 / 72
    ("mi300x", "bf16", 1307.4),
    # 836 AI TOPS with sparsity / 2, by NVIDIA's own rounding of the clock
    ("rtx-4080-super", "int8", 417.8),
    ("rtx-5070-ti", "fp4", 703),  # 1,406 AI TOPS with sparsity / 2
    ("rtx-2080-ti", "fp16", 53.8),
    ("mi250x", "bf16", 191.5),  # 383 of both dies / 2
    ("tpu-v6e", "bf16", 918),
]


@each(("name", "dtype", "tera"), PUBLISHED)
def test_dense_flops_are_the_published_ones(name: str, dtype: str, tera: float) -> None:
    assert gpu(name).peak(dtype) == round(tera * 1000) * TERA // 1000


@each(
    ("name", "gib"),
    [
        ("h100-80gb", "79.10"),  # trl#2688: total_gpu_memory (79.10GiB)
        ("h200", "139.80"),  # total capacity of 139.80 GiB
        ("b200", "178.35"),  # total capacity of 178.35 GiB
        ("mi300x", "191.69"),  # total capacity of 191.69 GiB
        ("a800-80gb", "79.33"),  # gpu memory in vLLM's start-up on 4 x A800
        ("rx-7900-xtx", "23.98"),  # total capacity of 23.98 GiB
        ("rtx-5060-ti-16gb", "15.55"),  # gpu memory in vLLM's start-up
        ("rtx-3060-12gb", "11.62"),  # total capacity of 11.62 GiB
        ("t4", "14.56"),  # total capacity of 14.56 GiB
        ("m3-max-128gb", "96.00"),  # recommendedMaxWorkingSetSize = 103079.22 MB = 96 * 2^30
    ],
)
def test_memory_is_what_software_logs(name: str, gib: str) -> None:
    assert f"{gpu(name).memory / 2**30:.2f}" == gib


@each(
    ("name", "mib"),
    [
        ("rtx-4090", 500),  # WSL shows 23.99 GiB, Linux 23.51
        ("rtx-3090", 24 * 1024 - 25296896000 // 2**20),  # not more than 24 GiB
        ("h100-80gb", 250),  # 79.10 to 79.33
        ("rtx-4090:23.99GiB", 0),
        ("mi300x", 0),
        ("gb10", 0),
        ("24GB", 0),
    ],
)
def test_other_drivers_may_show_more_memory(name: str, mib: int) -> None:
    _, found = gpus_of(name)
    assert found.more_memory == pytest.approx(mib * 2**20, abs=2**20)


def test_names_and_aliases_are_unique_and_found() -> None:
    words = [word for name in gpu_names() for word in (name, *gpu(name).aliases)]
    assert len(words) == len(set(words))
    assert all(gpu(alias).name == name for name in gpu_names() for alias in gpu(name).aliases)
    assert gpu("H100").name == gpu("h100_80gb").name == gpu("H100 80GB HBM3").name == "h100-80gb"
    assert gpu("RTX 4090").name == "rtx-4090"
    assert gpu("NVIDIA RTX PRO 6000 Blackwell Server Edition").name == "rtx-pro-6000"
    assert gpu("NVIDIA GH200 480GB").name == "gh200-96gb"  # the memory of its CPU


def test_a_name_in_one_word_is_that_gpu() -> None:
    """As people type it: '5070ti' was 5,070 TiB of memory."""
    for name in gpu_names():
        assert gpus_of(name.replace("-", ""))[1].name == name
    assert (
        gpus_of("5070Ti")[1].name
        == gpus_of("5070 ti")[1].name
        == gpus_of("5070ti")[1].name
        == "rtx-5070-ti"
    )


@each(
    ("name", "tip"),
    [
        ("Quadro RTX 8000", "give its memory"),
        ("NVIDIA RTX 5000 Ada Generation", "give its"),
        ("cuda", "'local' is"),
    ],
)
def test_an_unknown_gpu_needs_no_name(name: str, tip: str) -> None:
    with pytest.raises(AttncalcError, match="no GPU named") as caught:
        gpu(name)
    assert caught.value.tip.startswith(tip)


# GB of memory with which Apple sold each chip.
SOLD = {
    "m1": "8,16",
    "m1-pro": "16,32",
    "m1-max": "32,64",
    "m1-ultra": "64,128",
    "m2": "8,16,24",
    "m2-pro": "16,32",
    "m2-max": "32,64,96",
    "m2-ultra": "64,128,192",
    "m3": "8,16,24",
    "m3-pro": "18,36",
    "m3-max": "36,48,64,96,128",
    "m3-ultra": "96,256,512",
    "m4": "16,24,32",
    "m4-pro": "24,48,64",
    "m4-max": "36,48,64,128",
    "m5": "16,24,32",
    "m5-pro": "24,48,64",
    "m5-max": "36,48,64,128",
}


@each("chip", [*SOLD])
def test_every_memory_of_a_mac_is_a_gpu(chip: str) -> None:
    sizes = SOLD[chip].split(",")
    for size in sizes:
        found = gpu(f"{chip}-{size}gb")
        assert (found.name, found.memory_gb) == (f"{chip}-{size}gb", int(size))
        assert gpu(f"{chip.upper().replace('-', ' ')} {size}GB") == found
        assert f" {size}GB" in found.title
        assert found.unified
        assert 0.66 * 2**30 < found.memory / found.memory_gb < 0.91 * 2**30
    assert gpu(chip).name == f"{chip}-{sizes[-1]}gb"


@each(
    ("name", "logged"),
    [
        ("m1-16gb", "11453.25"),
        ("m1-max-32gb", "22906.50"),
        ("m4-16gb", "12713.12"),
        ("m4-24gb", "19069.67"),
        ("m4-32gb", "26800.60"),
        ("m4-max-36gb", "30150.67"),
        ("m3-max-36gb", "28991.03"),  # an M4 Max, macOS 15.7
        ("m4-pro-48gb", "40200.90"),
        ("m4-max-64gb", "55662.79"),
    ],
)
def test_a_mac_may_use_what_metal_logs(name: str, logged: str) -> None:
    """recommendedMaxWorkingSetSize in MB of 10^6: 2 / 3 * 16 GiB = 11,453.25; 0.78 * 48 GiB =
    40,200.90, rounded.
    """
    assert abs(gpu(name).memory / 10**6 - float(logged)) < 1


def test_a_memory_decides_bandwidth_and_cores_of_a_mac() -> None:
    """An M3 Max with 36 GB has 30 of 40 cores and 300 of 400 GB/s: 14.2 * 3 / 4 = 10.65 TFLOP/s."""
    small, large = gpu("m3-max-36gb"), gpu("m3-max")
    assert (small.bandwidth, large.bandwidth) == (300 * 10**9, 400 * 10**9)
    assert (dict(small.flops)["bf16"], dict(large.flops)["bf16"]) == (
        10_600_000_000_000,
        14_200_000_000_000,
    )
    assert small.title == "Apple M3 Max 36GB, 30 GPU cores"
    assert (
        large.notes[-1]
        == "Sold with other memories too: m3-max-36gb, m3-max-48gb, m3-max-64gb, m3-max-96gb."
    )
    assert gpus_of("2xM3 Max 64GB") == (2, gpu("m3-max-64gb"))


def test_a_family_with_a_memory_is_its_slowest_gpu() -> None:
    """Apple sells 36 GB with an M3 Pro of 150 GB/s and with an M3 Max of 300 GB/s."""
    assert gpu("m3-36gb").bandwidth == 150 * 10**9


def test_two_kinds_of_gpu_with_the_same_memory_are_the_slower_one() -> None:
    """An RTX 3090 has 936 GB/s, and an RTX 4090 1,008; both have 24 GB."""
    number, known = gpus_of("2x3090+4090")
    assert (number, known.bandwidth) == (3, 936 * 10**9)


def test_a_memory_that_was_not_sold_is_an_error_that_lists_those_that_were() -> None:
    with pytest.raises(AttncalcError, match="no GPU named 'm4-pro-72gb'") as caught:
        gpu("m4-pro-72gb")
    assert caught.value.tip.startswith(
        "known: m4-pro-24gb, m4-pro-48gb, m4-pro-64gb. 'attncalc gpus' lists"
    )


def test_an_unknown_gpu_gets_a_suggestion() -> None:
    error = refusal(gpu, "h100-80g")
    assert error.message == "no GPU named 'h100-80g', and no such file"
    assert error.tip.startswith("did you mean 'h100-80gb'? ")
    for name in ("", "x" * 5000, "a\0b", "/"):
        with pytest.raises(AttncalcError, match="no GPU named"):
            gpu(name)


def test_narrow_weights_run_in_their_own_dtype_or_in_16_bit() -> None:
    """fp8, int8 and NVFP4 use the GPU's own units, or 16-bit ones: an A100 has no fp8, an H100 no
    fp4.
    """
    assert gpu("h100-80gb").matmul_peak("fp8") == ("fp8", 1978_900 * TERA // 1000)
    assert gpu("a100-80gb").matmul_peak("fp8") == ("bf16", 312 * TERA)
    assert gpu("t4").matmul_peak("fp8") == ("fp16", 65 * TERA)
    assert gpu("b200").matmul_peak("fp4") == ("fp4", 9000 * TERA)
    assert gpu("h100-80gb").matmul_peak("fp4").dtype == "bf16"
    assert gpu("h100-80gb").matmul_peak("int8") == ("int8", 1978_900 * TERA // 1000)
    assert gpu("h100-80gb").matmul_peak("float16").dtype == "fp16"


def test_weights_that_are_only_stored_in_4_bit_run_in_16_bit(tmp_path: Path) -> None:
    """W4A16: the fp4 units of a B200 and the int4 units of a T4 need activations in 4 bit too."""
    assert gpu("b200").matmul_peak("mxfp4").dtype == gpu("b200").matmul_peak("int4").dtype == "bf16"
    flops = "flops: {bf16: 100, int8: 200, int4: 400, fp4: 800}"
    described = mine(tmp_path, flops, without="flops")
    assert described.matmul_peak("int4") == described.matmul_peak("mxfp4") == ("bf16", 100)
    assert described.peak("int4") == 400  # the file's own figure
    assert described.ridge("int4").numerator == 400


def test_llamacpp_multiplies_its_own_dtypes_in_int8(tmp_path: Path) -> None:
    described = mine(tmp_path, "flops: {bf16: 100, int8: 200}", without="flops")
    for name in ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"):
        assert described.matmul_peak(name) == ("int8", 200)
        assert mine(tmp_path).matmul_peak(name).dtype == "bf16"


@each("name", [name for name, stored in DTYPES.items() if stored.bits < 16])
def test_every_narrow_dtype_runs_on_every_gpu(name: str) -> None:
    for gpu_name in gpu_names():
        assert gpu(gpu_name).matmul_peak(name).flops > 0


def test_a_dtype_that_a_gpu_lacks_is_an_error_that_lists_its_dtypes() -> None:
    error = refusal(gpu("t4").peak, "bf16")
    assert error.message == "NVIDIA T4 has no published FLOP/s for bf16"
    assert error.tip.startswith("choose a dtype that it has: fp32, fp16, int8")
    with pytest.raises(AttncalcError, match="no dtype 'fp17'"):
        gpu("t4").peak("fp17")


def test_the_ridge_is_the_peak_over_the_bandwidth() -> None:
    """989.4e12 / 3.35e12 = 295.34 FLOP per byte."""
    ridge = gpu("h100-80gb").ridge("bf16")
    assert ridge[:2] == (989_400_000_000_000, 3_350_000_000_000)
    assert f"{float(ridge):.2f}" == "295.34"
    assert ridge.formula.text == "peak / bandwidth"


def test_memory_without_a_log_is_assumed_in_decimal_gb(tmp_path: Path) -> None:
    """10 GB are 10 * 10^9 bytes, and three quarters of that if the memory is unified."""
    assert (mine(tmp_path).memory, mine(tmp_path).measured) == (10 * 10**9, False)
    assert mine(tmp_path, "unified: true").memory == 7_500_000_000
    described = mine(tmp_path, "memory: 9500000000")
    assert (described.memory, described.measured, described.notes) == (9_500_000_000, True, ())
    assert mine(tmp_path, f"memory: {10 * 2**30}").memory == 10 * 2**30  # "10 GB" may mean 10 GiB
    assert mine(tmp_path).notes[0].endswith("10 x 10^9 bytes are assumed.")
    assert (
        mine(tmp_path, "unified: true")
        .notes[0]
        .endswith("are assumed, of which the GPU gets three quarters.")
    )


def test_a_gpu_file_without_further_keys_has_no_such_facts(tmp_path: Path) -> None:
    """0 multiprocessors are those of a GPU that is not NVIDIA's, or of which nobody knows them."""
    described = mine(tmp_path)
    assert (described.multiprocessors, described.compute_capability, described.nvlink) == (
        0,
        None,
        None,
    )
    assert (described.unified, described.aliases, described.name, described.title) == (
        False,
        (),
        "mine",
        "My GPU",
    )
    assert mine(tmp_path, "multiprocessors: 48").multiprocessors == 48


def test_a_gpu_file_is_yaml_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine.yml").write_text(MINE)
    assert gpu(tmp_path / "mine.yml").title == "My GPU"
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(AttncalcError, match="a GPU file is YAML"):
        gpu(tmp_path / "mine.json")
    with pytest.raises(AttncalcError, match="no GPU named"):
        gpu(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    ("more", "without", "message"),
    [
        # 10 GiB and a byte
        ("memory: 10737418241", "", "mine.yaml:7: memory: 10,737,418,241 is more than"),
        ("memory: 80GiB", "", "mine.yaml:7: memory: '80GiB' is not a whole number"),
        ("flop: 3", "", "mine.yaml:7: flop: there is no such key"),
        ("", "bandwidth", "mine.yaml:1: 'bandwidth' is missing"),
        ("flops: {bf17: 3}", "flops", "mine.yaml:6: flops.bf17: there is no such key"),
        ("flops: {}", "flops", "mine.yaml:6: flops: empty"),
        ("flops: {bf16: 0}", "flops", "mine.yaml:6: flops.bf16: 0 is below 1"),
        ("a: &a 1\nb: *a", "", "aliases are not supported"),
    ],
)
def test_an_invalid_file_is_an_error_with_its_line_and_a_tip(
    tmp_path: Path, more: str, without: str, message: str
) -> None:
    error = refusal(mine, tmp_path, more, without)
    assert message in error.message
    assert error.tip
    assert "llama2" not in error.tip


@each("name", ["rtx 4090", "4070 ti super", "A6000 ada", "m4 max 128gb"])
def test_a_name_of_several_words_is_shown_in_quotes(ask: Ask, name: str) -> None:
    error = ask("gpus", *name.split()).error
    assert error.endswith(f"in quotes: attncalc gpus '{name}'\n")
    assert ask("gpus", name).code == 0


@each("words", ["h100 vs a100", "24GB", "24", "nosuch"])
def test_the_tip_of_an_unknown_gpu_is_the_list_of_all(ask: Ask, words: str) -> None:
    error = ask("gpus", *words.split()).error
    assert error.endswith("  tip: 'attncalc gpus' lists the known GPUs\n")


def test_the_screens_of_all_gpus_and_of_one(ask: Ask) -> None:
    listed = ask("gpus")
    assert listed.code == 0
    assert max(map(len, listed.out.splitlines())) <= 80
    (row,) = [line.split() for line in listed.out.splitlines() if line.startswith("  h100-80gb")]
    assert row == ["h100-80gb", "79.10", "3,350.0", "989.4", "1,978.9", "295"]
    (marketed,) = [
        line.split() for line in listed.out.splitlines() if line.startswith("  rtx-5080-laptop ")
    ]
    assert marketed[1] == "14.90*"  # 16 * 10^9 bytes
    answer = ask("gpus", "h100")
    assert "NVIDIA H100 80GB SXM  h100-80gb" in answer.out
    assert "84,932,558,848 B" in answer.out
    assert answer.out.endswith("--full shows 1 note and 4 sources.\n")
    source = "Source: https://www.nvidia.com/en-us/data-center/h100/"
    assert source in ask("gpus", "h100", "--full").out
    # m3 is one of three, and the screen names the others
    assert "Sold with other memories too: m3-8gb, m3-16gb." in ask("gpus", "m3").out
    assert ask("gpus", "--full").error.startswith("error: --full shows one GPU\n")


def test_json_has_the_same_shape_for_all_gpus_and_for_one(ask: Ask) -> None:
    all_gpus, single = ask("gpus", "--json"), ask("gpus", "t4", "--json")
    assert results(all_gpus) == {"gpus": len(gpu_names())}
    assert results(single) == {"gpus": 1}
    documents = [json.loads(answer.out) for answer in (all_gpus, single)]
    assert [document["schema"] for document in documents] == [schema_name("gpus")] * 2
    assert documents[1]["layers"] == [
        layer for layer in documents[0]["layers"] if layer["name"] == "t4"
    ]
    figures = {r["name"]: (r["value"], r["unit"]) for r in documents[1]["layers"][0]["results"]}
    assert figures["bandwidth"] == (320 * 10**9, "B/s")
    assert figures["peak_fp16"] == (65 * TERA, "FLOP/s")
    assert figures["ridge_fp16"] == (203.125, "")  # 65e12 / 320e9


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_every_format_shows_a_gpu(ask: Ask, form: str) -> None:
    for words in (("gpus",), ("gpus", "mi300x")):
        answer = ask(*words, "--format", form)
        assert (answer.code, answer.err) == (0, "")
        assert "mi300x" in answer.out
    assert "peak / bandwidth" in " ".join(ask("gpus", "mi300x", "--explain").out.split())


def test_a_gpu_file_is_shown(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    assert "My GPU  mine" in ask("gpus", str(tmp_path / "mine.yaml")).out
    assert ask("gpus", "no-such-gpu").error.startswith(
        "error: no GPU named 'no-such-gpu', and no such file\n  tip: "
    )


# fp32 cores; 128 with any other compute capability (CUDA C++ Programming Guide, arithmetic
# instructions).
CORES_PER_MULTIPROCESSOR = {(6, 0): 64, (7, 0): 64, (7, 5): 64, (8, 0): 64}


@each("name", [n for n in gpu_names() if gpu(n).multiprocessors])
def test_multiprocessors_explain_the_fp32_peak_at_a_possible_clock(name: str) -> None:
    spec = gpu(name)
    assert spec.compute_capability
    cores = spec.multiprocessors * CORES_PER_MULTIPROCESSOR.get(spec.compute_capability, 128)
    clock = spec.peak("fp32") / (2 * cores)  # a core does one multiply-add per cycle: 2 FLOP
    assert 1.0e9 < clock < 2.7e9  # from a Jetson Orin Nano's 1.02 GHz


def test_a_compute_capability_is_read_as_two_numbers(tmp_path: Path) -> None:
    assert mine(tmp_path, 'compute_capability: "12.1"\nmultiprocessors: 48').compute_capability == (
        12,
        1,
    )
    with pytest.raises(AttncalcError, match="compute_capability"):
        mine(tmp_path, "compute_capability: sm_90")


def test_a_number_and_a_kind_of_gpus() -> None:
    for text in ("2xh100", "2 x H100", "2x h100-80gb"):
        number, kind = gpus_of(text)
        assert (number, kind.name) == (2, "h100-80gb")
    assert gpus_of("h100") == (None, gpu("h100"))
    assert gpus_of("3090")[0] is None
    assert gpus_of("7900xtx") == (None, gpu("rx-7900-xtx"))  # no 7,900 GPUs named 'tx'
    assert gpus_of("2x7900xt") == (2, gpu("rx-7900-xt"))


@pytest.mark.parametrize(
    ("text", "number", "memory"),
    [
        ("24GB", None, 47 * 2**29),  # half a GiB less than 24
        ("24 gb", None, 47 * 2**29),
        ("8GB", None, 15 * 2**29),
        ("96GB", None, 94 * 2**30),  # a 48th less
        ("24GiB", None, 24 * 2**30),
        ("23.5GiB", None, 47 * 2**29),
        ("4x48GB", 4, 47 * 2**30),
        ("16384MiB", None, 2**34),
        ("24000MB", None, 24 * 10**9),
    ],
)
def test_a_memory_is_a_gpu(text: str, number: int | None, memory: int) -> None:
    found, kind = gpus_of(text)
    assert (found, kind.memory, kind.bandwidth, kind.flops) == (number, memory, 0, ())


def test_a_size_is_what_software_sees_of_cards_with_it() -> None:
    """Those of NVIDIA without ECC in GDDR memory, within 0.15 GiB; an H100 shows 0.8 GiB more than
    other such cards.
    """
    for name in (
        "rtx-3060-12gb",
        "rtx-4070",
        "rtx-4080",
        "rtx-3090",
        "rtx-4090",
        "rtx-5090",
        "rtx-6000-ada",
        "h100-80gb",
    ):
        assert gpu(name).memory - gpu_with(f"{gpu(name).memory_gb}GB").memory == pytest.approx(
            2**28, abs=0.6 * 2**30
        )


@pytest.mark.parametrize(
    ("text", "gb"), [("24GB", 24), ("24GiB", 26), ("23.5GiB", 26), ("999MB", 1), ("1001MB", 2)]
)
def test_a_memory_is_rounded_up_to_whole_gb(text: str, gb: int) -> None:
    """24 * 2^30 B are 25.8 GB, 23.5 * 2^30 B are 25.2 GB. Software sees the bytes of GiB, as a log
    prints them.
    """
    assert (gpu_with(text).memory_gb, gpu_with(text).measured) == (gb, "i" in text)


@pytest.mark.parametrize(
    "text",
    [
        "0xh100",
        "2x",
        "x",
        "0GB",
        "24G",
        "2xnothing",
        "1" * 40 + "xh100",
        "9" * 99 + "GB",
        "2x0xh100",
        "64KB",
        "10606GB",
    ],
)
def test_an_impossible_number_or_memory_is_an_error(text: str) -> None:
    assert refusal(gpus_of, text).tip


def test_fit_takes_a_number_of_gpus_and_a_memory(ask: Ask) -> None:
    by_name = ask("fit", "qwen3-8b", "--gpu", "2xh100", "--json")
    assert (
        by_name.document["results"]
        == ask("fit", "qwen3-8b", "--gpu", "h100", "--gpus", "2", "--json").document["results"]
    )
    # --gpus may use fewer of them, and not more
    assert "2 x NVIDIA H100" in ask("fit", "qwen3-8b", "--gpu", "8xh100", "--gpus", "2").out
    assert (
        "tip: give the number once, as --gpu 4xh100"
        in ask("fit", "qwen3-8b", "--gpu", "2xh100", "--gpus", "4").error
    )
    memory = ask("fit", "qwen3-8b", "--gpu", "48GB", "--json")
    assert results(memory)["usable_memory"] == -(-47 * 2**30 * 92 // 100)
    assert memory.document["roofline"] is None
    assert "No roofline" in ask("fit", "qwen3-8b", "--gpu", "80GB", "--roofline").out


def test_fit_takes_only_the_defaults_of_a_gpu_beside_a_known_memory(ask: Ask) -> None:
    """The limits come from the GPU: a window is charged 2,048 batched tokens on an RTX 4090, 8,192
    on an H100.
    """
    alone, small, large = (
        results(ask("fit", "gemma3-27b", "--kv-memory", "40GiB", *options, "--json"))
        for options in ((), ("--gpu", "rtx-4090"), ("--gpu", "h100"))
    )
    assert small["kv_memory"] == large["kv_memory"] == 40 * 2**30
    assert small["weights"] is None
    assert small["min_gpus"] is None
    assert small["concurrency"] > large["concurrency"] == alone["concurrency"]
    assert small["decode_time_bound"] > 0


@pytest.mark.parametrize("option", [("--reserve", "1GiB"), ("--gpu-memory-utilization", "0.9")])
def test_options_about_the_rest_of_a_gpu_exclude_a_known_memory(
    ask: Ask, option: tuple[str, str]
) -> None:
    error = ask("fit", "qwen3-8b", "--kv-memory", "9GiB", "--gpu", "h100", *option).error
    assert error.startswith(f"error: {option[0]} cannot be combined with --kv-memory")


def test_a_gpu_can_have_the_memory_that_programs_see() -> None:
    known = gpu("rtx-5070-ti")
    seen = gpu("RTX 5070 Ti:15.92GiB")
    assert (seen.memory, seen.title, seen.measured) == (int(15.92 * 2**30), known.title, True)
    number, of_several = gpus_of("2xrtx-4090:23.6gib")
    assert (number, of_several.memory) == (2, int(23.6 * 2**30))
    # drivers of memory that is shared with the host may show a little more than there is
    assert gpu("strix-halo:128.5GiB").memory == 257 * 2**29
    with pytest.raises(AttncalcError, match="it has 24 GB, not 230GB") as caught:
        gpu("rtx-4090:230GB")
    assert "--gpu rtx-4090:23.6GiB" in (caught.value.tip or "")


def test_an_instance_of_several_gpus_is_not_answered_as_one(ask: Ask) -> None:
    error = ask("gpus", "p5.48xlarge", "g6.xlarge").error
    assert error == (
        "error: p5.48xlarge has 8 x h100-80gb\n  tip: 'attncalc gpus h100-80gb' shows one of them\n"
    )
    assert ask("gpus", "g6.xlarge", "-q").out == "l4\n"
