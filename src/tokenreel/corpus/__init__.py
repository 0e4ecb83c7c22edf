"""Corpora: documents over shards, splits, manifests and receipts, resolve and pieces.

``open_corpus`` (public as ``tokenreel.open``) recognises what a path holds and returns a `Corpus`.
"""
