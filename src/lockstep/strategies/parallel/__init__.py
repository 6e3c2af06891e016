"""The pieces that strategies are made of: messages, replicas, stages, BatchNorm and dropout over ranks."""
