"""What cannot be is refused in one sentence: the key, its value, why, and what to write instead."""


class Refusal(ValueError):
    """Input that no run can honour. The command prints the sentence and exits with status 2."""


def refuse(key: str, value: object, why: str, instead: str) -> Refusal:
    """The sentence `key=value: why; write instead.`, as an exception to raise."""
    return Refusal(f"{key}={shown(value)}: {why}; write {instead}.")


def shown(value: object) -> str:
    """A value as it is typed on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (tuple, list)):
        return "[" + ",".join(shown(item) for item in value) + "]"
    return str(value)


def require(holds: bool, key: str, value: object, why: str, instead: str) -> None:
    """Raise the refusal unless `holds`."""
    if not holds:
        raise refuse(key, value, why, instead)
