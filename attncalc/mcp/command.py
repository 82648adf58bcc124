"""`attncalc mcp`: a server of the Model Context Protocol for coding agents."""

from importlib.util import find_spec
from typing import Annotated

import typer

from ..cli.command import Options, command
from ..errors import CannotCheckError

_INSTALL = "pip install 'attncalc[mcp]'"


class ServerOptions(Options):
    """What the server may do."""

    skill: Annotated[
        bool, typer.Option("--skill", help="Instead: print SKILL.md, for agents that run commands.")
    ] = False
    network: Annotated[
        bool, typer.Option("--network", help="Let tools fetch models from the hub of Hugging Face.")
    ] = False


@command()
def mcp(options: ServerOptions) -> None:
    """Serve over standard input and output until the client closes them."""
    if options.skill:
        from .texts import skill

        typer.echo(skill(), nl=False)
        return
    if find_spec("mcp") is None:
        raise CannotCheckError("mcp needs the package of its protocol", _INSTALL)
    from .server import serve

    serve(has_network=options.network)
