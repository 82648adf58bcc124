"""The words that people bring from other tools and from their own language, and what to type for them.

One line per idea. The names of declared options and commands need no line: `Phrases` takes them too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from .records import NamedTuple

PLACEHOLDERS = {
    "N": ("number", "billions"),
    "RANK": ("number",),
    "SIZE": ("size", "number"),
    "DTYPE": ("dtype",),
    "SHARE": ("share",),
    "GPU": ("gpu", "size"),
    "DRAFT": ("model",),
    "KIND": ("attention",),
    "VALUE": ("number", "share", "time", "size"),
}
"""{what stands for a value: the kinds of words that it takes}."""


class Fragment(NamedTuple):
    """A part of a command line: the command, or '' for any, and options with their values."""

    command: str
    options: tuple[tuple[str, ...], ...]


class Idea(NamedTuple):
    """An idea that has other words elsewhere."""

    words: str  # the words that mean it, separated by blanks; 'per-token' is also the phrase 'per token'
    # What to type for it: a command, options, or both; a placeholder stands for the value beside it. ' | ' separates
    # alternatives, of which the first counts that the command has
    means: str = ""
    alone: str = ""  # what to type instead if no value is beside it
    note: str = ""  # what else to know about it
    lacks: str = ""  # what attncalc does not count of it, which is always said
    example: str = ""  # instead of `alone`: one with a value of ours, which a person has to choose

    @property
    def takes(self) -> str:
        """What stands for its value; '' if it has none."""
        found = re.search(rf"\b({'|'.join(PLACEHOLDERS)})\b", self.means)
        return found[1] if found else ""

    def fragments(self, value: str | None) -> list[Fragment]:
        """Return the alternatives, with the value in its place."""
        text = self.means if value is not None or not self.takes else self.alone or self.example
        found = []
        for part in filter(None, text.split(" | ")):
            words = part.split()
            command = "" if words[0].startswith("-") else words.pop(0)
            options: list[tuple[str, ...]] = []
            for word in words:
                if word.startswith("-"):
                    options.append((word,))
                else:
                    filled = (
                        re.sub(rf"^(r=|mla:)?{self.takes}$", lambda m: _prefixed(m[1] or "", str(value)), word)
                        if self.takes
                        else word
                    )
                    options[-1:] = [(*options[-1], filled)] if options else [(filled,)]
            found.append(Fragment(command, tuple(options)))
        return found

    def votes(self, value: str | None) -> list[tuple[str, float]]:
        """Return the commands that it speaks for, with their weights: `fit` suits most questions, and counts less."""
        commands = list(dict.fromkeys(one.command for one in self.fragments(value) if one.command))
        first = 2 - (commands[:1] == ["fit"])
        return [(command, first / 2**i) for i, command in enumerate(commands)]


def _prefixed(prefix: str, value: str) -> str:
    """Return 'mla:128,mla:256' for '128,256'."""
    return ",".join(f"{prefix}{one}" for one in value.split(","))


NO_FIGURE = "it changes no figure"
"""The note about words that may be left out, with their values."""
_OTHER_FIGURES = "--json has every figure; 'attncalc sweep MODEL --columns kv_cache,params_total' chooses some"

IDEAS = (
    # Questions
    Idea(
        "kv kv-cache cache cache-size kv-cache-quantization kv-quantization kv-size kv-cache-size size-of-the-kv-cache",
        "kv --kv-dtype DTYPE | sweep --kv-dtype DTYPE | --kv-dtype DTYPE",
        "kv | compare | sweep | fit",
    ),
    Idea("the-kv-cache a-kv-cache", "kv | compare | sweep | fit | explain"),
    Idea("bytes-per-token", "kv"),
    Idea(
        "double-the-context twice-the-context doubling-the-context twice-as-much-context context-doubles",
        "kv | flops | memory",
    ),
    Idea("per-token a-token memory-per-token", "kv | compare | flops --phase decode"),
    Idea("weights weight", "--weights-dtype DTYPE", "params | fit"),
    Idea("parameters parameter params param model-size summary stats describe weight-count", "params"),
    Idea("size count how-big how-large big large biggest largest", "params | fit | kv | memory | flops"),
    Idea(
        "dominate dominates dominant outweigh outweighs cost-more costs-more mlp attention-or-mlp attention-or-the-mlp",
        "flops | explain",
    ),
    Idea(
        "what-context which-context at-what-context from-what-context from-which-context",
        "fit --context auto | train --context auto | flops | compare",
    ),
    Idea("6nd 6-n-d", "flops --phase train"),
    Idea("intensity arithmetic-intensity operational-intensity", "compare | fit --roofline | explain"),
    Idea("flops flop macs gflops tflops compute", "flops | train"),
    Idea("flops-per-token flop-per-token compute-per-token", "flops --phase decode"),
    Idea("activations activation peak activation-memory attention-memory score-matrix", "memory"),
    Idea(
        "vs versus diff difference difference-between comparison compare against or compared-to cheaper crossover "
        "crossovers beat beats break-even",
        "compare | gpus | explain",
    ),
    Idea("vram gpu-memory gpu-mem video-memory", "--gpu SIZE | gpus --sort memory", "fit"),
    Idea(
        "memory mem ram-usage memory-usage memory-requirements memory-required memory-needed memory-need "
        "memory-footprint memory-use memory-consumption",
        "--gpu SIZE | gpus --sort memory",
        "fit | gpus | kv | compare | sweep | memory | params",
        "--ram 32GB is the host's memory",
    ),
    Idea(
        "fits hf-mem estimate-memory estimate calculate calculator accelerate run serve serving inference deploy "
        "launch load host chat can-run quantize requirements which-gpu how-big-a-gpu ollama-show",
        "fit",
    ),
    Idea("best-gpu", "plan --gpu all", note="--price h100=2.49,h200=3.79 ranks by price"),
    Idea(
        "cheapest cheapest-gpu cheap",
        "fit --gpu GPU | plan --gpu GPU",
        "fit | plan --gpu all",
        lacks="prices are not known here: 'attncalc plan MODEL --price h100=2.49,h200=3.79' ranks by yours",
    ),
    Idea(
        "how-many-gpus what-gpu capacity",
        "plan --gpu GPU | fit --gpu GPU | train --gpu GPU",
        "fit | plan --gpu all | train",
    ),
    Idea("ollama", "fit --engine ollama"),
    Idea("lms lm-studio", "fit --engine lmstudio"),
    Idea("gguf-parser llama.cpp koboldcpp kobold jan gpt4all", "fit --engine llamacpp"),
    Idea(
        "context longest-context max-context maximum-context max-context-length longest-context-length max-len max-ctx "
        "context-length biggest-context largest-context max-seq-len how-much-context",
        "--context N",
        "fit --context auto | train --context auto",
    ),
    Idea(
        "batch max-batch max-batch-size largest-batch requests concurrent-requests sequences slots concurrency "
        "concurrent parallel parallel-requests parallel-sessions sessions conversations chats streams",
        "--batch N",
        "fit",
    ),
    Idea(
        "roofline speed latency tps tok/s tokens/s tokens-per-second tokens-per-sec throughput how-fast fast "
        "bench benchmark",
        "fit --roofline",
    ),
    Idea(
        "cost costs price pricing budget money cost-per-hour price-per-hour per-hour hourly usd dollars "
        "cost-per-million-tokens price-per-million-tokens cost-per-token per-million-tokens per-gpu-hour gpu-hour "
        "million-tokens",
        "plan --price VALUE | --price VALUE",
        "plan | train --mfu 0.4",
        "--price is per GPU-hour",
    ),
    Idea(
        "users user people customers concurrent-users simultaneous-users",
        "plan --users N | fit --batch N | kv --batch N",
        "fit --context 8192 | plan | fit",
        "'attncalc plan MODEL --users 100 --prompt 4K --output-len 1K --gpu h100' finds the GPUs for so many users",
    ),
    Idea("plot chart graph draw", "sweep --plot"),
    Idea(
        "models list ls list-models model-list available-models search filter find tags best-model which-model "
        "what-model biggest-model largest-model coding-model",
        "presets | fit",
    ),
    Idea("show info inspect cat", "presets show | explain"),
    Idea("bandwidth memory-bandwidth", "gpus"),
    Idea("gpu-list list-gpus hardware nvidia-smi rocm-smi query-gpu list-devices", "gpus | fit"),
    Idea("gpus devices accelerators", "--gpus N", "gpus | fit"),
    Idea("preempt preempts preempted preempting preemption preemptions", "explain"),
    Idea("dp-attention attention-dp data-parallel-attention", "fit --attn-dp N", example="fit --attn-dp 8"),
    Idea("complexity vaswani table-1 vaswani-table", "flops --full | explain"),
    Idea(
        "glossary terms define definition meaning-of what-is what-does whats what why how-does how-do how-is how-are",
        "explain",
    ),
    Idea("oom out-of-memory out-of-vram out-of-ram run-out-of-memory cuda-oom", "fit"),
    Idea("ttft tpot itl time-to-first-token time-per-token", "--ttft VALUE", "fit --roofline"),
    Idea("no-gpu without-gpu no-gpus cpu-only", "fit --gpu cpu"),
    Idea("attention", "--attention KIND", "explain | flops | memory"),
    Idea("flash flash-attention flash-attn sdpa", "memory | explain | flops"),
    Idea("per-layer a-layer", "kv | params | explain"),
    Idea(
        "ps ollama-ps", note="a row of its table is a question: attncalc llama3.1:8b 46e0c10c039e 6.7 GB 100% GPU 4096"
    ),
    Idea("pull download", note="a built-in model needs no download"),
    Idea(
        "check assert ci gate validate fail exit-code strict assert-fits threshold max-kv-gb limit",
        note="'fit' exits with 1 if it does not fit; --fail-if 'kv_cache > 8GiB' checks a figure",
    ),
    # Training
    Idea(
        "train training trainer train-step finetune fine-tune finetuning fine-tuning tune sft pretrain pretraining "
        "backward full-finetune full-finetuning full-fine-tune full-fine-tuning full-parameter trainable axolotl "
        "fully-finetune fully-fine-tune torchrun trl llamafactory-cli "
        " llama-factory torchtune megatron megatron-lm nanogpt litgpt torchtitan swift",
        "train | flops --phase train",
    ),
    Idea(
        "unsloth",
        # unsloth/models/llama.py: get_peft_model(use_gradient_checkpointing="unsloth"), unsloth_fused_ce_loss
        "train --recompute full --loss fused --lora r=16 --weights-dtype nf4 --no-kbit-upcast --autocast",
        lacks="Unsloth's own kernels are not counted",
    ),
    Idea("liger liger-kernel use-liger-kernel", "train --loss fused", lacks="Liger's other kernels are not counted"),
    Idea("lora dora peft adapter adapters lora-rank lora-r r rank", "train --lora r=RANK", "train --lora r=16"),
    Idea(
        "qlora load-in-4bit bnb-4bit bnb nf4",
        "train --lora r=RANK --weights-dtype nf4",
        "train --lora r=16 --weights-dtype nf4 | --weights-dtype int4",
    ),
    Idea(
        "load-in-8bit bnb-8bit",
        "train --lora r=RANK --weights-dtype int8",
        "train --lora r=16 --weights-dtype int8 | --weights-dtype int8",
    ),
    Idea(
        "gradient-checkpointing activation-checkpointing grad-checkpointing grad-ckpt checkpointing recompute remat "
        "activation-recompute activation-recomputation activation-checkpoint checkpoint-activations",
        "train --recompute full",
    ),
    Idea("recompute-activations", "train --recompute selective"),
    Idea("distributed-optimizer zero1 zero-1", "train --zero 1"),
    Idea("adamw-8bit adamw8bit 8bit-adam 8bit-adamw", "train --optimizer adam8bit"),
    Idea("zero2 zero-2", "train --zero 2"),
    Idea("zero3 zero-3", "train --zero 3"),
    Idea("deepspeed ds-config", "train", note="--zero 3 is DeepSpeed's stage 3"),
    Idea(
        "dp dp-size data-parallel-size data-parallel-shard-degree data-parallel-degree dp-shards dp-replicate",
        "fit --dp N | plan --dp N | sweep --dp N | train",
        note="--gpus of train is the number of all GPUs: those that --tp, --pp and --cp leave are data-parallel",
    ),
    Idea("method finetuning-type", "train"),
    Idea("dpo kto", "train --reference-model", note="a pair of answers is two sequences: -b 2"),
    Idea("orpo simpo", "train", note="a pair of answers is two sequences: -b 2"),
    Idea("grpo ppo rloo rlhf", "train", lacks="neither generation of answers nor a --reference-model is counted"),
    Idea("fsdp fsdp2 fully-shard full-shard hsdp", "train --fsdp"),
    Idea("offload-optimizer", "train --offload optimizer"),
    Idea("offload-param offload-params", "train --offload params"),
    Idea("grad-accum-steps accumulate-grad-batches", "train --gradient-accumulation N"),
    Idea(
        "total-batch-size batch-tokens",
        note="--global-batch is in sequences: its tokens divided by the context",
    ),
    Idea("use-bf16 amp mixed-precision bf16-true", "--dtype bf16"),
    Idea("bf16-mixed", "train --dtype bf16 --param-dtype fp32"),
    Idea(
        "epoch epochs num-train-epochs training-time time-to-train",
        "train",
        note="an epoch of 100M tokens is --tokens 100M, which has its time",
    ),
    Idea(
        "steps iters max-steps days weeks hour hours deadline",
        "train",
        note="--tokens 10B has the time of so many tokens",
    ),
    Idea(
        "lr learning-rate weight-decay warmup seed log logging save data dataset output-dir wandb "
        "lora-alpha alpha threads library-name library port name",
        note=NO_FIGURE,
    ),
    # The load, and the hardware
    Idea(
        "block-size",
        "fit --block-size N | --context N",
        note="nanoGPT's is the context, -c 1024; 'fit' has vLLM's --block-size",
    ),
    Idea("tokens token n-tokens num-tokens length len", "--tokens N | --context N", "fit"),
    Idea("input inputs prompts", "--prompt N"),
    Idea("shared prefix prefix-caching system-prompt", "--shared-prefix N", "fit"),
    Idea(
        "output outputs answer answers response responses reply replies generate generation "
        "gen-len new-tokens tokens-to-generate num-predict n-predict",
        "--output-len N | flops --phase decode",
    ),
    Idea("decode decoding decode-step", "flops --phase decode | fit | plan"),
    Idea("prefill", "flops --phase prefill | fit | plan"),
    Idea("forward forward-pass forward-only inference-only", "flops | memory"),
    Idea("rate rps qps requests-per-second req/s requests/s", "--rate VALUE"),
    Idea(
        "card cards device accelerator graphics-card instance machine laptop desktop pc workstation node",
        "--gpu GPU",
        "fit",
    ),
    Idea(
        "mac macbook macbook-pro macbook-air mac-mini mac-studio",
        "--gpu GPU",
        note="a Mac needs its chip or its memory: --gpu 'mac 64GB'",
    ),
    Idea("ram system-ram host-ram cpu-ram ddr", "--ram SIZE", "fit"),
    Idea(
        "gpu-offload layers-on-gpu layers-on-the-gpu num-gpu-layers n-gpu-layers gpu-layers how-many-layers ngl",
        "fit -ngl N",
        "fit -ngl auto",
        "-ngl 20 puts 20 layers on the GPU; by default all that fit",
    ),
    Idea(
        "lmcache kv-offload kv-offloading offload-kv offload-kv-cache cache-offload kv-cache-offload",
        "fit --kv-offloading-size N",
        note="SGLang's is --hicache-size, and llama.cpp's -nkvo; --disk-size adds a disk",
        example="fit --kv-offloading-size 64",
    ),
    Idea("hicache hierarchical-cache", "fit --hicache-size N", example="fit --hicache-size 64"),
    Idea("num-gpu", "fit -ngl N", note="Ollama's num_gpu is -ngl; --gpus is the number of GPUs"),
    Idea("num-layers-per-virtual-pipeline-stage", note="--virtual-stages 2 gives each GPU two stages"),
    Idea("nodes hosts machines nnodes num-nodes num-machines", note="--gpus is the number of GPUs of all nodes"),
    Idea("shard shards num-shard tensor-parallel ways", "--tp N", "fit"),
    Idea("pipeline pipeline-parallel", "--pp N", "fit"),
    Idea("ep-size enable-ep", "--ep N | --enable-expert-parallel"),
    Idea("utilization util fraction share gpu-util cache-max-entry-count", "--gpu-memory-utilization SHARE"),
    Idea("max-num-seqs max-running-requests", "--max-num-seqs N | --max-running-requests N | --batch N", "fit"),
    Idea("kv-lora-rank latent-dim d-latent", "--attention mla:N"),
    Idea(
        "q-lora-rank qk-rope-head-dim qk-nope-head-dim v-head-dim rope-dim",
        note="mla:512 has a rotary key of 64; a model file sets other sizes",
    ),
    Idea("kinds kind variants baseline attn", "--attention VALUE"),
    Idea(
        "bits bit bpw dtypes quant quants quantization quantized precision",
        "--weights-dtype DTYPE | --kv-dtype DTYPE | --dtype DTYPE",
        "fit --quants",
    ),
    Idea(
        "bytes bytes-per-element", note="--kv-dtype names the cache's type: fp8 has 1 byte per element, bf16 2, fp32 4"
    ),
    Idea(
        "spec-decode speculative speculative-decoding speculation eagle eagle3 mtp",
        "fit --speculative-layers 1",
        note="--speculative-model names a draft model",
    ),
    Idea("draft draft-model drafter spec-model", "--speculative-model DRAFT"),
    # The answer
    Idea("path model-file gguf repo", "--preset VALUE"),
    Idea("hf-file hff", note="the type of weights may follow the repository: org/name-GGUF:Q4_K_M"),
    Idea(
        "full-attention dense-attention causal-attention",
        note="the model's own attention needs no option, and --window 4096 is a sliding window",
    ),
    Idea("sliding-window window-attention swa", "--window N", example="--window 4096"),
    Idea("csv", "--format csv"),
    Idea("latex tex", "--format latex"),
    Idea("markdown", "--format markdown"),
    Idea("export save-to", "--output VALUE"),
    Idea("verbose debug details detail", "fit --full | --explain"),
    Idea("silent q", "--quiet"),
    Idea("completions install-completion", note="'attncalc --show-completion bash' prints a shell's script"),
    Idea("fail-if", note="a sweep has --where 'kv_cache > 8GiB'; commands that answer about one model have --fail-if"),
    Idea("explain formula formulas", "--explain | explain"),
    Idea("no-color no-colour color colour screen-reader accessible accessibility braille no-unicode ascii", "--plain"),
    Idea("metric metrics column fields select figures", note=_OTHER_FIGURES),
    Idea("unit units in-gib bytes-only", note="figures are in KiB, MiB, GiB or TiB, and --json has bytes"),
)

_FILLER = """
a an the is are be do does did i my me our you it its this that for with on in at to of and by from as using use have
has having get give need needs needed require requires required want take takes would will can could should how much
many which when tell please each there so just exactly about if up gpu gpus model true total long max maximum min
minimum number running runs hold holds store stores support supports handle card cards machine one's enough possible
able we us via per self hosted full supported like let llm llms recommend suggest best active export gguf gb gib used
uses where table
"""
FILLER = frozenset(_FILLER.split())
"""Words of a sentence that say nothing here. 'not', 'no' and 'without' are none of them."""

_NEGATIONS = "no not never without except excluding minus non instead false off none null disabled"
NEGATIONS = frozenset(_NEGATIONS.split())
_COUNTS = "half double twice triple quarter third dozen million both pair couple"
COUNTS = frozenset(_COUNTS.split())
"""Words that change what others mean: they are never left out."""

NUMBERS = {
    "one": "1",
    "single": "1",
    "five": "5",
    "ten": "10",
    "twenty": "20",
    "hundred": "100",
    "thousand": "1000",
    "two": "2",
    "dual": "2",
    "three": "3",
    "four": "4",
    "six": "6",
    "eight": "8",
}

SAME = {
    **dict.fromkeys(("seq", "sequence", "ctx", "seqlen", "cutoff", "session"), "context"),
    **dict.fromkeys(("bs", "bsz"), "batch"),
    **dict.fromkeys(("quantize", "quantized", "quantization"), "quant"),
    "optim": "optimizer",
    **dict.fromkeys(("len", "length", "size", "max", "num", "n", "number", "total", "avg", "of", "with"), ""),
    **dict.fromkeys(("to", "per", "use", "enable", "default", "type", "set"), ""),
}
"""Parts of options' names that mean the same, or nothing: --max-seq-length is --context."""


class Phrases(dict[tuple[str, ...], Idea]):
    """{words of a phrase: its idea}: those of the vocabulary, before those of the names of options and commands."""

    def __init__(self, names: Iterable[tuple[str, Idea]]) -> None:
        known = {parts_of(word): idea for idea in IDEAS for word in idea.words.split()}
        for name, idea in names:
            known.setdefault(parts_of(name), idea)
        super().__init__({("".join(phrase),): idea for phrase, idea in known.items()} | known)
        self._alike = {_essence(phrase): idea for phrase, idea in reversed(self.items())}

    def of(self, name: str) -> Idea | None:
        """Return what exactly these words mean."""
        parts = parts_of(name)
        plural = (*parts[:-1], f"{parts[-1]}s") if parts[1:] else ()  # '1 kv head'
        return self.get(parts) or self.get(("".join(parts),)) or self.get(plural)  # 'adamw 8bit' is adamw8bit

    def same_as(self, name: str) -> Idea | None:
        """Return what the name of an option means, if its parts mean that too: --max-seq-length is --context."""
        parts = parts_of(name)
        return self.get(parts) or self._alike.get(_essence(parts) or parts)

    def like(self, name: str) -> Idea | None:
        """Return what an unknown name means: in other words, spelled wrong, or with more words."""
        parts = parts_of(name)
        if idea := self.same_as(name):
            return idea
        for phrase, idea in self.items():
            if len(parts) == len(phrase) and all(map(_is_alike, parts, phrase)):
                return idea
        runs = (parts[i:j] for i in range(len(parts)) for j in range(len(parts), i, -1))
        most = max((run for run in runs if run in self and _essence(run)), key=len, default=())
        return self[most] if 2 * len(_essence(most)) >= len(_essence(parts)) > 0 else None


def parts_of(name: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[-_ ]+", name.lower().replace("'", "")) if part)


def _essence(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the parts of a name that distinguish it: ('context',) of --max-seq-length."""
    return tuple(same for part in parts if (same := SAME.get(part, part.removesuffix("s") if len(part) > 3 else part)))


def _is_alike(part: str, known: str) -> bool:
    """Return whether a part of a name is another one that is cut off or spelled wrong: 'frac', 'bacth'."""
    is_start = len(part) > 2 and known.startswith(part)
    return is_start or difflib.SequenceMatcher(None, part, known).ratio() > 0.75


ASSUMED = ("--prompt", "--output-len", "--mfu", "--layers", "--gpu all")
"""Options whose example is assumed without a value, as it is a usual one: an answer names it."""
ON_GPU = ("options of a GPU",)
"""Stands for the options that mean nothing without --gpu, as -ngl."""
NEEDS = {
    "fit": (
        (("--context auto",), ("--gpu", "--log"), "--gpu all"),
        (("--roofline",), ("--gpu", "--log"), "--gpu h100"),
        (("--ram",), ("--gpu",), "--gpu cpu"),
        (ON_GPU, ("--gpu",), "--gpu h100"),
        (("--output-len", "--shared-prefix"), ("--prompt",), "--prompt 4K"),
        (("--prompt",), ("--output-len",), "--output-len 1K"),
    ),
    "train": (
        (("--tokens", "--mfu", "--price"), ("--gpu",), "--gpu h100"),
        (("--mfu", "--price"), ("--tokens",), "--tokens 1B"),
        (("--sequence-parallel",), ("--tp",), "--tp 2"),
        (("--virtual-stages",), ("--pp",), "--pp 2"),
    ),
    "plan": (
        ((), ("--users", "--rate"), "--users 100"),
        ((), ("--prompt", "--lengths"), "--prompt 4K"),
        ((), ("--output-len", "--lengths"), "--output-len 1K"),
        ((), ("--gpu",), "--gpu all"),
    ),
}
"""{command: (if one of these is given, it needs one of these options, an example)}; () is always."""
OF_SIZES = (
    ((), ("--layers",), "--layers 1"),
    ((), ("--heads", "--kv-heads"), "--heads 32"),
    ((), ("--head-dim", "--d-model"), "--head-dim 128"),
)
"""The same for a model that is described by its sizes."""
