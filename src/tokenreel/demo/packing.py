"""The act of the demo about packing: one corpus in rows two ways, and what each wastes, cuts and saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenreel.demo.acts import Stage

ROW_TOKENS = 1024
WAYS = (("concat", None), ("bestfit", "split"))


def pack(stage: Stage) -> dict[str, Any]:
    """Pack the corpus end to end and by best fit, and show one row."""
    from tokenreel.corpus.opening import open_corpus
    from tokenreel.index.plan_stats import corpus_packing
    from tokenreel.pack.packed import PackedOrder
    from tokenreel.pack.packed_policy import Packing

    corpus = open_corpus(stage.corpus).split("train")
    packings = [Packing.of(policy, ROW_TOKENS, oversize=oversize) for policy, oversize in WAYS]
    stage.say(
        f"$ tokenreel pack stats corpus/train --seq-length {ROW_TOKENS} --policy concat --policy bestfit --oversize split"
    )
    facts = corpus_packing(corpus, packings, seed=stage.seed)
    (waste,) = facts["whole"]["waste"]
    stage.say(
        f"one document a row: {waste['chunked']:.1%} of rows of {ROW_TOKENS:,} would be empty; "
        f"truncated, {waste['lost']:.1%} of tokens would be lost"
    )
    for one in facts["packing"]:
        stage.say(
            f"  {one['packing']['policy']}: {one['rows']:,} rows, {one['padding']:.3%} padding, "
            f"{one['documents_cut']:,} documents cut, {one['cut_needlessly']:,} of them needlessly, "
            f"{one['attention_saved']:.0%} of attention saved by masks"
        )
    order = PackedOrder.over(corpus.table(), packings[1], seed=stage.seed).prepare()
    table = order.spans(0, 1)
    row = [
        {"document": int(d), "start": int(s), "tokens": int(n)}
        for d, s, n in zip(table.document, table.start, table.length, strict=True)
    ]
    said = ", ".join(f"{one['tokens']} of document {one['document']}" for one in row if one["document"] >= 0)
    stage.say(f"first row of bestfit: {said}")
    corpus.close()
    return {"row_tokens": ROW_TOKENS, "waste": waste, "packing": facts["packing"], "row": row}
