"""What words make of those around them: values of ideas, sizes of models, nodes of GPUs, denials."""

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise, product
from math import ceil, log2

from ..config import load
from ..config.gpus import gpus_of
from ..config.presets import of_size, preset_of, starting_with, usual_dense, with_file_type
from ..cost.params import params
from ..errors import is_valid
from ..hardware import PER_NODE
from ..model import plural
from ..options import WEIGHTS_DTYPE
from ..vocabulary import GLUE, NO_FIGURE, OTHER_SIZES, Idea
from .arithmetic import number
from .gpu_words import gpu_in
from .kinds import Item, is_context, is_instance, kind_of, parts_of_names

EITHER = ("vs", "versus", "or", "and")
_HAS = dict.fromkeys(("use", "uses", "using", "have", "has"), ("attention",)) | {"support": ("dtype",)}
"""{verb of a question about what there is: the kinds of words that it asks for, and does not set}."""
_BEFORE_USED = "than|shows|showing|uses|used|says|reports|takes?|needs|eats|exceeds|available"
"""Words before a size that is used, and no GPU's."""
CLAIM = "compare it with the answer"
"""The note about a number that a question only compares: 'bigger than 40GB', 'is 40 tokens/s possible'."""
_DENIALS = ("not", "never", "no", "instead", "without")
_PARTS = "(lm[-_ ]?)?head|lm|(un)?embeddings?|mlp|ffn|logits|vocab(ulary)?|projections?"
"""Parts of a model without which a question asks for another total: 'FLOPs without the LM head'."""
_SMALL_WORDS = ("then", "any", "so", "also", "really", "yet")
_UNLIKELY = {"N--context": r"\d{1,2}", "SIZE--gpu SIZ": r"\d{4,}", "RANKtrain --l": r".*[kKmM,].*"}
"""{placeholder and start of what an idea means: numbers that it hardly has, as '3 epochs' after 'context'}."""
_MOST_IDEAS = 8
_CHANGED = r"(?i)doubl\w+|halv\w+|half|twice|improv\w+|increas\w+|reduc\w+|saves?|savings?|gains?|lowers?|worth"


def with_usual(items: Sequence[Item]) -> Sequence[Item]:
    """Return the items with the 16 bits that 'does fp8 double ...' compares fp8 with, instead of the verb.

    'Does fp8 double my batch size' may be asked of weights or of the cache: both are compared.
    """
    others = [item for item in items if item.value or not re.fullmatch(_CHANGED, item.typed)]
    types = [item for item in others if item.kind == "dtype" or item.has_type]
    if len(others) == len(items) or len(types) != 1:
        return others if types else items
    usual = "fp16" if (own := types[0].value or types[0].text)[:1] in "qQ" else "bf16"
    other = types[0]._replace(value=usual) if types[0].value else types[0]._replace(text=usual)
    if own in ("fp16", "bf16"):
        return others
    counts = any(item.idea and re.search("--(batch|users)|concurren", item.idea.means) for item in others)
    is_open = counts and own == "fp8" and types[0].kind == "dtype"
    return [other, *others, *[Item("option", "--kv-dtype", own, value=f"{usual},{own}")] * is_open]


def with_neighbours(items: Sequence[Item]) -> list[Item]:
    """Return the items with what the next word makes of them."""
    found = _with_free_values(items)
    for i in range(len(found) - 2, 0, -1):  # 'q4 vs q8 vs f16 kv cache'
        before, word, typed = found[i - 1 : i + 2]
        if before.kind == "dtype" and word.text in EITHER[:3] and typed.has_type:
            found[i - 1] = typed._replace(value=before.text)
    for i, (item, after) in enumerate(pairwise(found)):
        is_counted = after.kind == "plain" or (after.idea is not None and not after.idea.means)
        is_speed = after.idea is not None and "tps" in after.idea.words.split()
        is_ratio = after.typed.lower() == "times" and not any(one.takes for one in found[i + 2 : i + 4])
        is_part = item.kind == "share" and after.typed.lower() in ("gpu", "cpu")
        # '40 tokens/s', '8 times smaller', '60% gpu' of `ollama ps`, not '2 times more users'
        if is_part or (item.kind == "number" and (is_speed or is_ratio)):
            found[i] = _compared(item, "--tpot VALUE" if is_speed else "")
        elif after.kind in _HAS.get(item.typed.lower(), ()) and found[0].typed.lower() in ("does", "is", "has"):
            found[i + 1] = after._replace(kind="plain")  # 'does mistral 7b use gqa'
        elif re.fullmatch(_BEFORE_USED, item.typed.lower()) and after.kind == "size":  # 'than 40GB'
            found[i + 1] = _compared(after)
        elif is_counted and (item.kind == "size" or (item.kind == "number" and item.typed.isdigit())):
            found[i] = item._replace(kind="unknown")  # '10000 samples', '50 GB disk'
        elif item.kind == "model" and after.typed.lower() in OTHER_SIZES and not re.search(r"\d[bB]\b", item.typed):
            found[i + 1] = Item("unknown", after.text, f"{item.typed} {after.typed}", is_guess=True)  # 'gpt-3 xl'
        elif item.text in EITHER and i and found[i - 1].value and after.kind in found[i - 1]._replace(value=None).takes:
            # 'batch 1 vs 32', 'kv cache fp8 vs fp16'
            found[i + 1] = found[i - 1]._replace(value=after.text)
    return found


def _with_free_values(items: Sequence[Item]) -> list[Item]:
    """Return the items with the values of words that change no figure: 'alpha 128', 'seed 0', 'lr 2e-4'."""
    found = list[Item]()
    for item in items:
        before = found[-1] if found else item
        is_free = before.idea and not before.idea.means and before.idea.note == NO_FIGURE and not before.value
        if is_free and re.match(r"\d*\.?\d", item.typed) and item.kind in ("number", "share", "unknown"):
            found[-1] = before._replace(value=item.typed)
        else:
            found.append(item)
    return found


def _compared(item: Item, means: str = "") -> Item:
    """Return a number with which a question compares the answer, if no option has it."""
    return item._replace(
        kind="idea", idea=Idea(item.typed, means, note=CLAIM), value=f"{item.text}/s" if means else None
    )


def without_denied(items: Sequence[Item]) -> Sequence[Item]:
    """Return the items with MHA for 'without gqa', and without the kind of attention that a model is said to lack."""
    found = [*items]
    for i, (item, after) in enumerate(pairwise(items)):
        if after.kind == "attention" and item.typed.lower() in _DENIALS:
            found[i : i + 2] = Item("filler", item.text, item.typed), after._replace(text="mha")
        elif after.kind == "attention" and any(one.typed.endswith("n't") for one in items[max(i - 1, 0) : i + 1]):
            found[i + 1] = Item("filler", after.text, after.typed)  # 'phi-3-mini doesn't have GQA'
    return found


def without_empty(items: Sequence[Item]) -> list[Item]:
    """Return the items with a denial that denies nothing, a part of a name alone, and an 'or' of two clauses as plain.

    For example the 'not' of 'and if not, which', the 'small' of 'so small', and 'or should I get'.
    """
    found = [*items]
    said = [i for i, item in enumerate(items) if item.kind != "filler" and item.typed.lower() not in _SMALL_WORDS]
    for place, i in enumerate(said):
        before, after = ([items[j] for j in some] for some in (said[:place][-1:], said[place + 1 :][:1]))
        if _is_empty(items[i], items[max(i - 1, 0) : i], before, after, items[i + 1 : i + 2]):
            found[i] = Item("plain", items[i].text, items[i].typed)
    return found


def _is_empty(
    item: Item, adjoining: Sequence[Item], before: Sequence[Item], after: Sequence[Item], following: Sequence[Item]
) -> bool:
    """Return whether a word says nothing here: beside the words around it, with and without those that say nothing."""
    text = item.text.lower()
    if text in _DENIALS:
        return not any(map(_changes, after)) or any(one.text.lower() in ("if", "or", "why", "but") for one in adjoining)
    if text == "or":
        kinds = {one.kind for one in (*before, *after)}
        return len(kinds) > 1 or "plain" in kinds
    is_part = item.kind == "unknown" and text in parts_of_names() and not starting_with(text)
    return is_part and not any(one.kind in ("model", "gpu") for one in (*adjoining, *following))


def without_this_machine(items: list[Item]) -> list[Item]:
    """Return the items of a question about a model without 'my GPU', if this machine has none."""
    if not any(item.kind == "model" for item in items) or is_valid(gpus_of, "local"):
        return items
    asked = [one for one in items if one.idea and one.idea.alone == "--gpu local" and one.value is None]
    return [Item("plain", one.typed, one.typed) if one.text == "local" or one in asked else one for one in items]


def as_one_machine(items: list[Item]) -> list[Item]:
    """Return the items of 'two 3090s and one 4090' as one machine, and of 'g5.xlarge (1 A10)' without the A10."""
    said = [item.typed.lower() for item in items]
    places = [i for i, item in enumerate(items) if item.kind == "gpu"]
    named = [i for i in places if is_instance(items[i].text)]
    if len(named) == 1 and not {"or", "vs"} & {*said}:
        of_instance = gpus_of(items[named[0]].text)[1].name
        kinds = {i: re.sub(r"^\d+x|(?<=\d)\D.*", "", items[i].text) for i in places if i not in named}
        return [item for i, item in enumerate(items) if not of_instance.startswith(kinds.get(i, " "))]
    if (
        len(places) != 2
        or not {"have", "has", "own", "got", "with", "mix", "combine"} & {*said[: places[0]]}
        or {"or", "vs"} & {*said}
    ):
        return items
    first, last = places
    joint = items[first]._replace(text=f"{items[first].text}+{items[last].text}")
    return [*items[:first], joint, *items[last + 1 :]] if {*said[first + 1 : last]} <= {"and", "plus", "a"} else items


def _changes(item: Item) -> bool:
    """Return whether 'not' before an item would take away what it sets, or a part of a total: 'not fp8'."""
    is_set = item.kind in ("dtype", "option", "attention", "unknown") or (item.idea is not None and not item.is_cue)
    return is_set or re.fullmatch(_PARTS, item.typed.lower()) is not None


def with_splits(items: Sequence[Item]) -> list[Item]:
    """Return the items with lists for two splits of a model: --tp 4,2 --pp 1,2 for 'tp=4 vs tp=2 pp=2'."""
    names = ["".join(re.findall(r"--[tpd]p\b", one.idea.means if one.idea else one.text)[:1]) for one in items]
    either = next((i for i, item in enumerate(items) if item.text in EITHER), 0)
    if not (either and names[either - 1] and "".join(names[either + 1 : either + 2]) and items[either - 1].value):
        return [*items]
    sides = [dict(zip(names[part], items[part], strict=True)) for part in (slice(either), slice(either, None))]
    found = [item for i, item in enumerate(items) if not names[i] and i != either]
    for name in filter(None, dict.fromkeys(names)):
        value = ",".join((name in side and side[name].value) or "1" for side in sides)
        found.append(Item("option", name, name, value=value, is_guess=True, is_exact=True))
    return found


def with_values(items: Sequence[Item]) -> list[Item]:
    """Return the items with the values of ideas: '8' of 'batch 8', and '500' of '500 users'.

    A number between two ideas belongs to the one that leaves the fewest words without a place, and then to the nearer.
    """
    has_price = any(item.text == "--price" and item.value for item in items)
    takers = [i for i, item in enumerate(items) if item.takes and not (has_price and "--price" in item.idea.means)]  # type: ignore[union-attr]
    takers, further = takers[:_MOST_IDEAS], takers[_MOST_IDEAS:]

    def cost(chosen: Sequence[int | None]) -> tuple[float, int, int]:
        left = [item for i, item in enumerate(items) if i not in chosen and item.kind in ("number", "share", "time")]
        pairs = [(i, j) for i, j in zip(takers, chosen, strict=True) if j is not None]
        before, distance = sum(j < i for i, j in pairs), sum(abs(j - i) for i, j in pairs)
        without = (
            0.5 if items[i].idea.takes in ("GPU", "HOST") or items[i].text in GLUE else 1  # type: ignore[union-attr]
            for i, j in zip(takers, chosen, strict=True)
            if j is None
        )
        return sum(without) + sum(not is_context(item.text) for item in left), distance, before

    choices = product(*([*_beside(i, items), None] for i in takers))
    chosen = min((one for one in choices if len({*one} - {None}) == len(one) - one.count(None)), key=cost)
    values = {i: items[j].text for i, j in zip(takers, chosen, strict=True) if j is not None}
    found = [
        item._replace(value=_of_mac(item, values[i]) if i in values else item.value)
        for i, item in enumerate(items)
        if i not in chosen
    ]
    return with_values(found) if further and values else found


def with_active(items: Sequence[Item]) -> Sequence[Item]:
    """Return the items with the users who are active: 30 of '300 employees, 10% active at once'."""
    share = next((item for item in items if item.typed == "--peak-share" and item.value), None)
    all_users = next(
        (one for one in items if one.value and "--users" in (one.text, *(one.idea.means.split() if one.idea else ()))),
        None,
    )
    part = re.fullmatch(r"(\d{1,3}(?:\.\d+)?)%|1/([1-9]\d{0,3})", (share and share.value) or "")
    most = number(re.sub(r",(?=\d{3}\b)", "", all_users.value or "")) if all_users else None
    if not (part and share and all_users and most):
        said = Item("plain", "active", f"{share.value if share else ''} active")
        return [said if item is share else item for item in items]
    users = ceil(most * Fraction(part[1]) / 100 if part[1] else most / int(part[2]))
    counted = (all_users.idea or Idea("users", "--users N"))._replace(
        lacks=f"{all_users.value} x {share.value} = {users} active users"
    )
    active = all_users._replace(value=str(users), idea=counted, is_guess=True, is_exact=True)
    return [active if item is all_users else item for item in items if item is not share]


def _of_mac(item: Item, value: str) -> str:
    """Return a Mac of that memory, of which a GPU has less: 'mac 24gb'. The chip changes the speed only."""
    if not re.match(r"(?i)mac(book|[ -]|$)", item.typed) or kind_of(value) != "size":
        return value
    mac = f"mac {value}"
    return gpus_of(mac)[1].name if gpu_in(mac) else value


def with_nodes(
    items: Sequence[Item], nodes: Item, machine: Item | None, counted: Item | None, *, is_split: bool
) -> list[Item]:
    """Return the items with the GPUs of all nodes: 2x8xh100 of two nodes with 8xh100.

    `machine` names a node's GPU, with its number or without one; `counted` is the number of GPUs, of all nodes if the
    usual node has fewer. `is_split` is whether another option decides how many GPUs there are.
    """
    name = (machine.value or machine.text) if machine else ""
    total, usual = int((counted and counted.value) or 0), PER_NODE
    if is_valid(gpus_of, name):
        usual = gpus_of(name)[1].per_node
    has_number = re.match(r"\d+x", name) is not None or is_instance(name)
    if counted is nodes:
        total = 0
    if not has_number and (total > usual or is_split or not (machine or total)):
        unused = nodes._replace(idea=Idea("nodes", note=NO_FIGURE), is_exact=total > usual or is_split)
        return [unused if item is nodes else item for item in items]
    others = [item for item in items if not any(item is one for one in (nodes, machine, counted))]
    text = f"{nodes.value}x{name}" if has_number else f"{nodes.value}x{total or usual}x{name}".rstrip("x")
    lacks = "" if has_number else f"{plural(total or usual, 'GPU')} per node are assumed: --gpus is the number of all"
    if not machine:
        text, idea = str(int(nodes.value or 1) * total), Idea("gpus", "--gpus N", lacks=lacks)
        return [*others, Item("idea", "gpus", nodes.typed, idea, text, is_guess=True, is_exact=True)]
    return [
        *others,
        Item("idea", "gpu", nodes.typed, Idea("gpu", "--gpu GPU", lacks=lacks), text, is_guess=True, is_exact=True),
    ]


def with_models(items: Sequence[Item]) -> list[Item]:
    """Return the items with a model of each size: 'llama 70b', 'the 120b model of gpt-oss', '405b' of 'llama3.1-70b and
    405b'; and of 'a 7B' if no model is named.
    """
    items = _without_other_sizes(items)
    is_named = any(item.kind == "model" for item in items)
    found, families = list[Item](), list[Item]()
    for item in items:
        if item.kind != "billions":
            found.append(item)
            continue
        families_of = (one for one in (*found[-1:], *items) if one.kind == "unknown" or one.names_a_family)
        family = next((one for one in families_of if len(one.typed) > 2 and of_size(item.text, one.typed)), None)
        before = found[-1] if found else item
        last = next((one for one in reversed(found) if one.kind == "model"), None)
        if family:
            names = of_size(item.text, family.typed)
        elif is_named:
            is_choice = last and any(one.text in EITHER for one in found[found.index(last) :])  # 'or the 7b'
            # qwen2.5-coder-7b of 'qwen2.5 coder 14b or the 7b'
            same = re.sub(r"(?i)(?<![\d.])\d+(\.\d+)?b\b", item.text.lower(), last.text) if last else ""
            others = [same] if preset_of(same) else of_size(item.text, same.partition("-")[0])
            names = others if last and is_choice else []
        else:
            names = of_size(item.text) or _nearest_size(item.text)
        if not names:
            found.append(item)
            continue
        families += [family] if family else []
        typed = f"{family.typed} {item.typed}" if family else item.typed
        is_other = not family and before.kind == "plain" and before.text == before.typed  # 'vicuna 13b'
        found.append(Item("model", names[0], typed, is_guess=True, is_exact=not is_other))
    return [one for one in found if not any(one is family for family in families)]


def with_types(items: Sequence[Item]) -> list[Item]:
    """Return the items with each model's type in its name: 'qwen3-32b:q4' of 'qwen3 32b q4 or llama3.1 70b q2'."""
    own = {
        item: f"{item.text}:{WEIGHTS_DTYPE.parse(after.text, '')}"
        for item, after in pairwise(items)
        if (item.kind, after.kind) == ("model", "dtype") and "," not in after.text
    }
    models = {item.text for item in items if item.kind == "model"}
    are_files = all(with_file_type(name)[1] for name in own.values())
    if not (are_files and len(own) == len(models) == sum(item.kind == "dtype" for item in items) > 1):
        return [*items]
    return [item._replace(text=own.get(item, item.text)) for item in items if item.kind != "dtype"]


def _nearest_size(size: str) -> list[str]:
    """Return the usual dense preset whose parameters are nearest to '1.3B'; [] if none is within a half of it."""
    asked = number(size) or Fraction(1)
    ratios = {name: abs(log2(int(params(load(name)).total) / max(int(asked), 1))) for name in (*usual_dense(), "gpt2")}
    nearest = min(ratios, key=lambda name: ratios[name])
    return [nearest] if ratios[nearest] < 0.6 else []


def _without_other_sizes(items: Sequence[Item]) -> Sequence[Item]:
    """Return the items without the size of the only model, '47b' of 'mixtral 8x7b: all 47b parameters', or without the
    model if it has another size: GPT-3 of 'an 82B parameter GPT-3'.
    """
    sized = [one for one in items if one.kind == "billions" or re.fullmatch(r"\d+M", one.text)]
    named = [one for one in items if one.kind == "model" and preset_of(one.text)]
    if not sized or len(named) != 1 or re.search(r"\d[bB]\b(?<!x\d[bB])", named[0].typed):
        return items
    there = params(load(named[0].text))
    ratios = {one: [int(size) / (number(one.text) or 1) for size in (there.total, there.active)] for one in sized}
    own = [one for one, both in ratios.items() if any(0.8 < ratio < 1.25 for ratio in both)]
    others = [one for one, after in pairwise(items) if one in sized and after.typed[:5].lower() == "param"]
    if own or len(others) != 1:
        return [one for one in items if one not in own]
    return [one._replace(kind="plain", text=one.typed) if one is named[0] else one for one in items]


def _beside(i: int, items: Sequence[Item]) -> Iterator[int]:
    """Yield the places of the words after and before an idea that may be its value."""
    for step in (1, -1):
        j = i + step
        while 0 <= j < len(items) and items[j].text.lower() in GLUE and items[j].value is None:
            j += step
        idea = items[i].idea
        is_batch = idea is not None and (("--batch" in idea.means and step == 1) or idea.means == "--batch N")
        counts = idea and (idea.takes == "SIZE" or is_batch)  # 'users at 64k', '16k requests'
        text = items[j].text if 0 <= j < len(items) else ""
        is_long = bool(counts and re.search(r"(?i)k|,", text))
        is_long |= bool(re.search(r"(?i)[mbt]$", text)) and [one.typed[:5] for one in items[j + 1 : j + 2]] == ["param"]
        is_long |= bool(idea and re.fullmatch(_UNLIKELY.get(idea.takes + idea.means[:9], "-"), text))
        is_long |= any(one.ends for one in items[min(i, j) : max(i, j)])  # '16 heads, 1024 hidden'
        if 0 <= j < len(items) and items[j].kind in items[i].takes and not is_long:
            yield j
    if "--price" in items[i].idea.means:  # type: ignore[union-attr]
        yield from (j for j, item in enumerate(items) if item.kind == "share" and "%" not in item.text)
