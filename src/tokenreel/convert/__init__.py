"""Turn corpora into others, provably the same: merge, adopt."""
