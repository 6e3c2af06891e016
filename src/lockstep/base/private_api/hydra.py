"""Private names of Hydra: the parser of its flags."""

from hydra._internal.utils import get_args_parser as get_args_parser
