"""What a user brings, in a folder of its own beside its configs: nets and data that know nothing of Lockstep."""
