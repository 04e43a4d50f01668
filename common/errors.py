"""Errors that a person can act on."""


class DistRLError(Exception):
    """Base of all errors that this project raises on purpose."""


class ConfigError(DistRLError):
    """A flag, file or checkpoint is unusable as given; launchers exit with code 2."""


class DeviceError(DistRLError):
    """A device failed: gone, hung, or answered nonsense. Truncates the episode.

    Attributes:
      cause: What is wrong in a word, to be counted by; see `actors.device.causes`.
    """

    def __init__(self, message: str, cause: str = "device"):
        super().__init__(message)
        self.cause = cause


class WireError(DistRLError):
    """A received message is malformed.

    Attributes:
      code: A short upper-case name of the refusal, such as "BAD_SCHEMA".
    """

    def __init__(self, code: str, message: str):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class AgentError(DistRLError):
    """Whoever acts can't: the service behind a prompted agent fails. No failure of the agent."""
