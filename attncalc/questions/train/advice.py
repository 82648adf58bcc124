"""Changes in the keys of the trainer whose command or file was given:
'gradient_checkpointing: true' and not '--recompute full'.
"""

from collections.abc import Iterable

# How keys are written: in a command, as overrides of torchtune, in a file of YAML or in Python.
_FORMS = {
    "command": ("--{} {}", " "),
    "override": ("{}={}", " "),
    "yaml": ("{}: {}", ", "),
    "python": ("{} = {}", ", "),
}
# What an option is in the keys of a trainer that does it anyway.
_ANYWAY = "-"


def in_keys(options: Iterable[str], launcher: str) -> str:
    """Return options as a launcher's keys; those that it has no key for as options of `attncalc
    train`.

    Args:
        options: Options of `attncalc train`, each with its value: '--recompute full'.
        launcher: A trainer and how its keys are written, as 'axolotl yaml'; '' for none.
    """
    if not launcher:
        return " ".join(options)
    trainer, _, form = launcher.partition(" ")
    template, between = _FORMS.get(form, _FORMS["command"])
    found = []
    for text in options:
        for pair in _keys_of(text, trainer):
            key, _, value = pair.partition(" ")
            if pair == text:
                found.append(text)
            elif key.isupper():  # a variable of the environment
                found.append(f"{key}={value}")
            elif key != _ANYWAY:
                found.append(template.format(key, value))
    return between.join(dict.fromkeys(found))


def _keys_of(text: str, trainer: str) -> list[str]:
    """Return a trainer's keys, 'lora_r 16', of an option; the option itself if it has none."""
    # only with a pasted command or file, which the page does not read: it has no trainers
    from .trainers import ADVICE

    option, _, value = text.partition(" ")
    known = ADVICE.get(trainer, {})
    keys = known.get(text, known.get(f"{option} *", text))
    return [pair.replace("*", value) for pair in keys.split(", ")]
