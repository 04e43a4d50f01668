"""The commands of the phone's shell, by name."""

from actors.phone.commands import (
    activity,
    builtins,
    dumpsys,
    file_commands,
    input_commands,
    package,
    screen,
    settings,
    system,
    text,
)
from actors.phone.process import Command

COMMANDS: dict[str, Command] = {
    name: command
    for module in (
        activity,
        builtins,
        dumpsys,
        file_commands,
        input_commands,
        package,
        screen,
        settings,
        system,
        text,
    )
    for name, command in module.COMMANDS.items()
}
