"""One example a command, as its help and the page of commands show it."""

from __future__ import annotations

EXAMPLES = {
    "demo": "tokenreel demo /tmp/demo",
    "build": "tokenreel build recipe.toml --out corpus --workers 8",
    "verify": "tokenreel verify corpus --level full",
    "inspect": "tokenreel inspect corpus/train --doc 0",
    "adopt": "tokenreel adopt shards --boundary suffix=2",
    "convert": "tokenreel convert shards out --to megatron-v1 --boundary suffix=2",
    "merge": "tokenreel merge a b all",
    "repair": "tokenreel repair shards --out mended --boundary prefix=50256",
    "mix": "tokenreel mix run.toml",
    "order show": "tokenreel order show run.toml --sample 0",
    "order export": "tokenreel order export run.toml -o order.parquet",
    "order compare": "tokenreel order compare a.toml b.toml",
    "order find": "tokenreel order find run.toml --doc 0",
    "pack stats": "tokenreel pack stats corpus/train --seq-length 4096",
    "index convert": ("tokenreel index convert --input wiki --output-dir cache --seq-length 2048 --num-samples 1000"),
    "index blend": (
        "tokenreel index blend --datasets 'a,0.7;b,0.3' --output-dir cache --seq-length 2048 --total-samples 1000"
    ),
    "index check": "tokenreel index check cache --corpus wiki --seq-length 2048 --num-samples 1000",
    "state show": "tokenreel state show state.json --run run.toml",
    "state migrate": "tokenreel state migrate state.json new.toml --from old.toml",
    "state import": "tokenreel state import run.toml --megatron 1024000",
    "trace": "tokenreel trace run.toml --step 12",
    "ledger diff": "tokenreel ledger diff a.jsonl b.jsonl",
    "ledger exposure": "tokenreel ledger exposure ledger.jsonl --run run.toml",
    "ledger export": "tokenreel ledger export ledger.jsonl -o ledger.parquet",
    "ledger to-index": "tokenreel ledger to-index ledger.jsonl --run run.toml --out index",
    "replay build": "tokenreel replay build corpus/train --buckets buckets.parquet --out index",
    "replay validate": "tokenreel replay validate index --level full",
    "replay join": "tokenreel replay join index --source-root upstream --out found",
    "replay streams": "tokenreel replay streams found --index index --tokenizer tokenizer.json --out streams",
    "formats": "tokenreel formats",
    "explain": "tokenreel explain MEG004",
    "schema": "tokenreel schema mix -o mix.schema.json",
}
