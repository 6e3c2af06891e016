"""The private name of Hydra: the parser of its flags."""

from argparse import ArgumentParser


def flags_parser() -> ArgumentParser | None:
    """The parser of Hydra's flags; None in a version without it: then Hydra itself refuses a wrong flag."""
    try:
        from hydra._internal.utils import get_args_parser
    except ImportError:
        return None
    return get_args_parser()
