"""Index files on disk: Megatron's, MaxText's, ours; and runs assembled into orders."""
