"""A LightningModule of the user's own, and the data that it comes with: what both engines do for them, once.

`session` holds what a run needs. `create` makes module and data, `loaders` divides their batches among ranks, `logged`
keeps what `self.log` is given, `loss_weight` weighs a rank's loss, `virtual` runs the ranks of ddp in turn.
No engine changes the user's code: a few methods of the one instance are wrapped.
"""
