"""The pieces that strategies and engines are made of: messages, replicas, stages, BatchNorm and dropout over ranks."""
