"""The nets: pure modules, built from the data's shape alone, without rank, device, logger or engine."""

from lockstep.nets.char_rnn import CharRNN
from lockstep.nets.cnn import CNN
from lockstep.nets.lenet import LeNet, SplitCNN
from lockstep.nets.mlp import MLP, Linear

__all__ = ["CNN", "MLP", "CharRNN", "LeNet", "Linear", "SplitCNN"]
