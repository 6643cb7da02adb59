"""Options that mean the same in every verb."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
