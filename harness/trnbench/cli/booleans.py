"""Boolean options that mean what they are told: `--resume False` switches off, `--resume maybe` is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer.core

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TRUE_WORDS = frozenset({"true", "yes", "on", "1"})
FALSE_WORDS = frozenset({"false", "no", "off", "0"})


class StrictCommand(typer.core.TyperCommand):
    """A command whose boolean options also take a spelled-out value, after a blank or an equals sign.

    A word that is neither true nor false stays where it is, and the parser refuses it as an unexpected argument.
    Options are never abbreviated, and a misspelt one is answered with the nearest.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Replace every boolean option with a value by its plain form, then parse as usual."""
        pairs = {
            positive: option.secondary_opts[0]
            for option in self.params
            if isinstance(option, typer.core.TyperOption) and option.secondary_opts
            for positive in option.opts
        }
        return super().parse_args(ctx, plain_flags(args, pairs))


def plain_flags(arguments: Sequence[str], pairs: Mapping[str, str]) -> list[str]:
    """`arguments` with `--x true` as `--x` and `--x false` as `--no-x`; `pairs` maps each `--x` to its `--no-x`."""
    plain: list[str] = []
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        position += 1
        if argument == "--":
            return [*plain, argument, *arguments[position:]]
        name, equals, value = argument.partition("=")
        if name not in pairs:
            plain.append(argument)
            continue
        if not equals and position < len(arguments) and arguments[position].lower() in TRUE_WORDS | FALSE_WORDS:
            value = arguments[position]
            position += 1
        if value.lower() in FALSE_WORDS:
            plain.append(pairs[name])
        elif not equals or value.lower() in TRUE_WORDS:
            plain.append(name)
        else:
            plain.append(argument)
    return plain
