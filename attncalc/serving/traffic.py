"""The requests that users send: how many tokens they have on average and at most, and what they
share.
"""

from ..errors import AttncalcError, clash
from ..quantity import Quantity, ceil_div, quantity, symbol
from ..records import NamedTuple
from ..units import count

# Tokens of a request of which an option is left out.
USUAL_PROMPT = 4096
USUAL_OUTPUT = 1024
# {these: how people type them}.
USUAL = {USUAL_PROMPT: "4K", USUAL_OUTPUT: "1K"}


class Traffic(NamedTuple):
    """Requests with a prompt and an output, or with lengths that are equally frequent.

    Attributes:
        prompt: Tokens of a prompt, with the shared prefix; 0 if `lengths` are given.
        output: Tokens of an output.
        shared_prefix: Tokens with which all prompts start, such as a system prompt.
        lengths: Tokens of requests, prompt and output together, instead of `prompt` and `output`.
        average: Tokens that a request holds on average, if requests differ and `prompt` and
            `output` are means; else 0.
        longest: Tokens of the longest request then; else 0.
    """

    prompt: int = 0
    output: int = 0
    shared_prefix: int = 0
    lengths: tuple[int, ...] = ()
    average: int = 0
    longest: int = 0

    @property
    def average_tokens(self) -> Quantity:
        """Tokens that a request holds on average: its prompt and half of its output, or the mean
        length; rounded up.
        """
        if self.lengths:
            lengths = symbol("lengths", sum(self.lengths), "tokens of all lengths together")
            return quantity(
                ceil_div(lengths, symbol("requests", len(self.lengths), "number of lengths"))
            )
        if self.average:
            return symbol("T_average", self.average, "tokens that a request holds on average")
        prompt, output = self._symbols
        return quantity(prompt + ceil_div(output, 2))

    @property
    def worst_tokens(self) -> Quantity:
        """Tokens that a request holds at most: its prompt and its output, or the largest length."""
        if self.lengths:
            return symbol("T_max", max(self.lengths), "tokens of the longest request")
        if self.longest:
            return symbol("T_max", self.longest, "tokens of the longest request")
        prompt, output = self._symbols
        return quantity(prompt + output)

    @property
    def shared_tokens(self) -> int:
        """Tokens at the start of every request that may be stored once.

        These are fewer than a prompt, because engines compute at least its last token.
        """
        return min(self.shared_prefix, self._shortest - 1)

    @property
    def _symbols(self) -> tuple[Quantity, Quantity]:
        return symbol("prompt", self.prompt, "tokens of a prompt"), symbol(
            "output", self.output, "tokens of an output"
        )

    @property
    def _shortest(self) -> int:
        """Tokens of the shortest prompt; of a length it is not known which part is the prompt."""
        if self.lengths:
            return min(self.lengths)
        return self.prompt

    def check(self, context: int) -> None:
        """Raise AttncalcError if a number is not possible, or a request is longer than
        `context`.
        """
        if self.lengths and (self.prompt or self.output):
            raise clash("--lengths", "--prompt", "the lengths include prompt and output")
        if self._shortest < 1 or self.output < 0 or self.shared_prefix < 0:
            raise AttncalcError(
                "a request has at least one token, and no number of tokens is negative",
                "give --prompt 4K --output-len 1K, for example",
            )
        if self.shared_prefix > self._shortest:
            name = "the shortest of --lengths" if self.lengths else "--prompt"
            raise AttncalcError(
                f"--shared-prefix {count(self.shared_prefix)} is longer than {name}, "
                f"{count(self._shortest)}",
                f"the prefix is part of every prompt: give --shared-prefix {self._shortest} or "
                "less",
            )
        longest = int(self.worst_tokens)
        if longest > context:
            if self.lengths:
                what = "the longest of --lengths"
            else:
                what = "--prompt and --output-len together"
            raise AttncalcError(
                f"{what} {'has' if self.lengths else 'have'} {count(longest)} tokens, more than "
                f"the context of {count(context)}",
                f"give shorter requests, or --context {longest} if the model supports it",
            )


def usual_lengths(
    prompt: int | None, output: int | None, context: int | None, longest: int
) -> tuple[int, int]:
    """Return the tokens of a prompt and of an output, with the usual ones in the place of None.

    Of a context of 8,192 tokens the prompt has 7,168. Without one both together have at most
    `longest` tokens, the model's longest context: with 1,024, as GPT-2 has, they are 768 and 256.
    """
    most = context or longest
    if output is None:
        room = most // 4 if prompt is None else most - prompt
        output = min(USUAL_OUTPUT, max(1, room))
    if prompt is None:
        rest = max(1, most - output)
        prompt = rest if context else min(USUAL_PROMPT, rest)
    return prompt, output
