"""The nets: pure modules, built from the data's shape alone, without rank, device, logger or engine."""

from typing import TYPE_CHECKING

from lockstep.base.lazy import lazy_names

if TYPE_CHECKING:
    from lockstep.nets.char_rnn import CharRNN as CharRNN
    from lockstep.nets.cnn import CNN as CNN
    from lockstep.nets.lenet import LeNet as LeNet
    from lockstep.nets.lenet import SplitCNN as SplitCNN
    from lockstep.nets.mlp import MLP as MLP
    from lockstep.nets.mlp import Linear as Linear
    from lockstep.nets.transformer import Transformer as Transformer

__getattr__, __dir__ = lazy_names(
    __name__, "char_rnn.CharRNN cnn.CNN lenet.LeNet lenet.SplitCNN mlp.Linear mlp.MLP transformer.Transformer"
)
