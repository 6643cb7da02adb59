"""Options that mean the same in every verb."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Values may have units: 1h, 10MB. May be repeated."),
]
Unset = Annotated[
    list[str] | None, typer.Option("--unset", metavar="KEY", help="Back to the default. May be repeated.")
]
