"""Help and usage of all verbs: full sentences in lists of verbs, `...` behind repeatable arguments, and suggestions for
words that other tools have in place of ours.
"""

from typing import Any

from typer.core import TyperCommand, TyperGroup

# Words of other tools, and what does the same here. In a group, the first of the verbs that it has is suggested.
_VERBS = {
    "describe": ("topic show TOPIC", "group show GROUP"),
    "consume": ("tail TOPIC",),
    "consumer": ("tail TOPIC",),
    "read": ("tail TOPIC",),
    "cat": ("tail TOPIC --no-follow",),
    "send": ("produce TOPIC",),
    "publish": ("produce TOPIC",),
    "producer": ("produce TOPIC",),
    "console-consumer": ("tail TOPIC",),
    "console-producer": ("produce TOPIC",),
    "write": ("produce TOPIC",),
    "start": ("serve",),
    "list": ("topic list", "group list"),
    "ls": ("topic list", "group list"),
    "create": ("topic create TOPIC",),
    "show": ("topic show TOPIC", "group show GROUP"),
    "alter": ("topic alter TOPIC",),
    "delete": ("topic delete TOPIC", "group delete GROUP"),
    "reset": ("group reset GROUP",),
    "copy": ("group copy FROM TO",),
    "topics": ("topic list",),
    "groups": ("group list",),
    "transactions": ("transaction list",),
    "abort": ("transaction abort ID",),
    "status": ("doctor",),
    "version": ("--version",),
    "help": ("--help",),
}
_IN_GROUPS = {
    "describe": ("show",),
    "info": ("show",),
    "get": ("show",),
    "add": ("create",),
    "make": ("create",),
    "new": ("create",),
    "update": ("alter", "reset"),
    "edit": ("alter", "reset"),
    "set": ("alter", "reset"),
    "remove": ("delete", "prune"),
    "help": ("--help",),
}
_OPTIONS = {
    "--port": "--listen HOST:PORT",
    "--host": "--listen HOST:PORT",
    "--topic": "TOPIC",
    "--from-beginning": "--from earliest",
    "--max-messages": "--count N",
}
_TEXT_MAX = 500  # of a verb in a list: a whole sentence


class VerbCommand(TyperCommand):
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] TOPIC... [FILE]`."""
        options = [self.options_metavar] if self.options_metavar else []
        return options + [_piece(param) for param in self.get_params(ctx) if param.param_type_name == "argument"]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = {name for param in self.get_params(ctx) for name in param.opts}
        for word in args:
            name = word.partition("=")[0]
            if name in _OPTIONS and name not in options and not ctx.resilient_parsing:
                ctx.fail(f"No such option: {name}. Did you mean `{_OPTIONS[name]}`?")
        ctx.allow_extra_args = True  # they are refused here, with a hint
        extra: list[str] = super().parse_args(ctx, args)
        if extra and not ctx.resilient_parsing:
            is_setting = "--set" in options and "=" in extra[0]
            ctx.fail(f"Unexpected argument: {extra[0]}" + (f". Did you mean `--set {extra[0]}`?" if is_setting else ""))
        return extra


class VerbGroup(TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        shown = {name: command for name, command in self.commands.items() if not command.hidden}
        if shown:
            with formatter.section("Commands"):
                formatter.write_dl([(name, each.get_short_help_str(_TEXT_MAX)) for name, each in shown.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and (meant := self._meant(ctx, args[0])):
            ctx.fail(f"No such command '{args[0]}'. Did you mean {' or '.join(f'`{one}`' for one in meant)}?")
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: Any, word: str) -> list[str]:
        if ctx.parent is None:
            return [f"{ctx.command_path} {meant}" for meant in _VERBS.get(word, ())]
        here = [verb for verb in _IN_GROUPS.get(word, ()) if verb in self.commands or verb.startswith("-")]
        return [f"{ctx.command_path} {verb}" for verb in here[:1]]


def _piece(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()) + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"
