"""``manifest.json`` of the layout ounce: every shard with its size, hash, counts, mix by source, and first and last document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.store import dumps_canonical, write_bytes_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.build.mix_finish import MixEnding
    from tokenreel.build.mix_shards import MixShard
    from tokenreel.build.mix_write import WrittenShard

MANIFEST = "manifest.json"


def write_ounce_manifest(ending: MixEnding, seed: int | None) -> None:
    """Write the manifest; the fields that `formats.ounce_manifest` reads, and more that it leaves alone."""
    boundary, tokenizer = ending.target.boundary, ending.tokenizer
    said: dict[str, Any] = {
        "format": "ounce-v1",
        "vocab": ending.target.vocab,
        "doc_prefix": list(boundary.prefix),
        "doc_suffix": list(boundary.suffix),
        "tokenizer": {k: tokenizer[k] for k in ("repo", "revision", "file", "name", "sha256") if tokenizer.get(k)},
        "order": ending.order,
        "seed": seed,
    }
    pairs = list(zip(ending.shards, ending.written, strict=True))
    for split in ("train", "val"):
        mine = [pair for pair in pairs if (pair[0].split == "val") == (split == "val")]
        if mine or split == "train":
            tokens = sum(one.finished.tokens for _, one in mine)
            said[split] = {"tokens": tokens, "shards": _shards(mine)}
            if split == "val":
                said[split]["rule"] = ending.split_rule
    write_bytes_atomic(ending.out / MANIFEST, dumps_canonical(said))


def _shards(pairs: Sequence[tuple[MixShard, WrittenShard]]) -> list[dict[str, Any]]:
    out = []
    for _, one in pairs:
        (file,) = one.finished.files
        out.append(
            {
                "file": file.path,
                "bytes": file.bytes,
                "sha256": file.sha256,
                "n_docs": one.finished.documents,
                "n_tokens": one.finished.tokens,
                "source_tokens": one.source_tokens,
                "first_doc_id": one.first_id,
                "last_doc_id": one.last_id,
            }
        )
    return out
