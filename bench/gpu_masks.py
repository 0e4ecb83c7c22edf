"""On a machine with a GPU: packed rows through flash-attn's varlen, FlexAttention and SDPA, all against a loop over documents, and their times.

Needs torch with CUDA; flash-attn is used where it is installed, else torch's own varlen attention where there is one. Prints a table; records nothing.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tokenreel.pack.cu_seqlens import batch_edges
from tokenreel.pack.packed_inputs import check_edges, segments_of
from tokenreel.pack.packed_policy import Packing
from tokenreel.pack.packed_rows import PlannedRows
from tokenreel.pack.plan import make_plan
from tokenreel.pack.plan_sizes import Sizes
from tokenreel.pack.policy import row_policy

HEADS, WIDTH = 16, 64


def packed_edges(rows: int, room: int) -> tuple[np.ndarray, int]:
    """Edges of the documents of best-fit rows, all rows end to end, and the longest piece."""
    rng = np.random.default_rng(1)
    lengths = np.maximum(1, rng.lognormal(np.log(700), 1.0, 40 * rows)).astype(np.uint32)
    packing = Packing.of("bestfit", room, oversize="split")
    sizes = Sizes.of_lengths(lengths)
    table = PlannedRows(sizes, make_plan(sizes, packing), packing).extents(np.arange(rows))
    longest = np.zeros((), dtype=np.int32)
    policy = row_policy({"kind": "documents", "cu_seqlens": "batch"})
    edges = batch_edges(table, policy, room, np.empty(rows * room + 1, dtype=np.int32), longest)
    return check_edges(edges, rows * room, int(longest)), int(longest)


def timed(torch: Any, run: Callable[[], Any], rounds: int) -> tuple[Any, float]:
    """The result, and milliseconds a call."""
    for _ in range(3):
        out = run()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(rounds):
        out = run()
    torch.cuda.synchronize()
    return out, (time.perf_counter() - begin) / rounds * 1000


def varlen() -> Callable[..., Any] | None:
    for module, name in (("flash_attn", "flash_attn_varlen_func"), ("torch.nn.attention.varlen", "varlen_attn")):
        try:
            found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
        if name == "flash_attn_varlen_func":
            return lambda q, k, v, cu, most: found(q, k, v, cu, cu, most, most, causal=True)
        return lambda q, k, v, cu, most: found(q, k, v, cu, cu, most, most, is_causal=True)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--row-tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        print("torch is not installed", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("no GPU: the same is proved on the CPU in tests/pack/test_packed_inputs.py", file=sys.stderr)
        return 2
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    rows, room = options.rows, options.row_tokens
    edges, longest = packed_edges(rows, room)
    cu = torch.from_numpy(edges).cuda()
    segments = torch.from_numpy(segments_of(edges).reshape(rows, room)).cuda()
    torch.manual_seed(0)
    q, k, v = (torch.randn(rows, HEADS, room, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    flat = [x.transpose(1, 2).reshape(rows * room, HEADS, WIDTH).contiguous() for x in (q, k, v)]

    expected = torch.empty_like(flat[0], dtype=torch.float32)
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        a, b, c = (x[low:high].transpose(0, 1).float() for x in flat)
        scores = a @ b.transpose(1, 2) / math.sqrt(WIDTH)
        keep = torch.ones(high - low, high - low, device="cuda", dtype=torch.bool).tril()
        expected[low:high] = (scores.masked_fill(~keep, -math.inf).softmax(-1) @ c).transpose(0, 1)

    def document(b: Any, _head: Any, i: Any, j: Any) -> Any:
        return (segments[b, i] == segments[b, j]) & (i >= j)

    block = flex.create_block_mask(document, rows, None, room, room, device="cuda")
    compiled = torch.compile(flex.flex_attention)
    dense = (segments[:, None, :, None] == segments[:, None, None, :]) & torch.ones(
        room, room, device="cuda", dtype=torch.bool
    ).tril()
    sides: dict[str, Callable[[], Any]] = {
        "FlexAttention, compiled": lambda: compiled(q, k, v, block_mask=block),
        "SDPA, dense mask": lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=dense),
        "SDPA, causal over whole rows (leaks)": lambda: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True
        ),
    }
    function = varlen()
    if function is not None:
        sides["varlen, cu_seqlens"] = lambda: function(*flat, cu, longest)
    print(f"{torch.cuda.get_device_name()}: {rows} rows of {room:,}, {len(edges) - 1} pieces, the longest {longest:,}")
    wrong = 0
    for name, run in sides.items():
        out, taken = timed(torch, run, options.rounds)
        out = out[0] if isinstance(out, tuple) else out
        found = out if out.dim() == 3 else out.transpose(1, 2).reshape(rows * room, HEADS, WIDTH)
        error = float((found.float() - expected).abs().max())
        leaks = "leaks" in name
        wrong += (error > 0.05) != leaks
        print(f"  {name}: {taken:.2f} ms, largest difference {error:.3g}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
