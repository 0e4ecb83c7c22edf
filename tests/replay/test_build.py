"""Building: from a corpus, resumed, refused; ids and buckets as others computed them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from tests.cli.command import run
from tests.replay.made import make
from tokenreel.errors import ReplayError
from tokenreel.formats.base import Boundary
from tokenreel.replay.buckets import bucket_id, bucket_name, bucket_named, quality_bucket
from tokenreel.replay.metadata import TokenPolicy, parse_manifest, parse_mix
from tokenreel.replay.streams import Stream, run_file
from tokenreel.replay.tokens import split_text, tokeniser
from tokenreel.testing import write_corpus
from tokenreel.text import load_tokenizer, tokenizer_from_bytes
from tokenreel.text.normalise import Normaliser, text_id

GOLDEN = Path(__file__).parents[1] / "golden/replay"


def test_ids_of_texts_as_marin_makes_them() -> None:
    cases = json.loads((GOLDEN / "documents.json").read_text())
    for case in cases["document_ids"]:
        assert text_id(case["text"]).hex() == case["id_of_input"]
        for whitespace, name in (("python", "python"), ("columnar", "rust")):
            text = Normaliser("marin", whitespace)(case["text"])
            assert (None if text is None else text_id(text).hex()) == case[f"id_{name}_ws"]
    for score, bucket in cases["quality_buckets"]["cases"]:
        assert quality_bucket(score) == bucket


def test_buckets_have_names() -> None:
    for number in range(200):
        assert bucket_named(bucket_name(number)) == number == bucket_id(number // 5, number % 5)
    with pytest.raises(ReplayError, match="RPL002"):
        bucket_id(40, 0)
    with pytest.raises(ReplayError, match="RPL002"):
        quality_bucket(float("nan"))


def test_published_spellings_are_read() -> None:
    published = {
        "total_documents": 3,
        "files": {"data/task_00000.parquet": {"rows": 3, "size_bytes": 9, "sha256": "0" * 64}},
        "rows_by_source": {"a": 3},
        "bucket_counts": {"0": 3},
    }
    manifest = parse_manifest(published)
    assert (manifest.documents, manifest.tasks, manifest.files[0].task_id, manifest.files[0].bytes) == (3, 1, 0, 9)
    with pytest.raises(ReplayError, match="RPL003"):
        parse_manifest({**published, "total_documents": "three"})


def test_a_corpus_is_indexed_by_its_rows_or_its_text(tmp_path: Path) -> None:
    texts = [f"document {n} of a corpus" for n in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (tmp_path / "recipe.toml").write_text(
        '[tokenizer]\nname = "bytes"\n[split]\nrule = "none"\n[[source]]\nname = "web"\npaths = ["a.jsonl"]\n'
    )
    ran = run("build", tmp_path / "recipe.toml", "--out", tmp_path / "corpus", "--workers", 1)
    assert ran.status == 0, ran.err
    rows = [{"domain_cluster": n % 40, "quality_score": n / 40} for n in range(40)]
    (tmp_path / "buckets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = {}
    for how in ("text", "normalised"):
        out = tmp_path / how
        ran = run(
            "replay",
            "build",
            tmp_path / "corpus/train",
            "--buckets",
            tmp_path / "buckets.jsonl",
            "--ids",
            how,
            "--out",
            out,
            "--json",
        )
        assert ran.status == 0, ran.err
        found[how] = json.loads((out / "manifest.json").read_text())
        assert run("replay", "validate", out, "--level", "full").status == 0
    assert found["text"]["documents_by_bucket"] == found["normalised"]["documents_by_bucket"]
    from tokenreel.replay.files import read_batches
    from tokenreel.store import LocalStore

    for how in found:
        store = LocalStore(tmp_path / how)
        ids = [
            row["document_id"]
            for file in found[how]["files"]
            for batch in read_batches(store, file["path"])
            for row in batch.to_pylist()
        ]
        assert ids == [text_id(text) for text in texts]


def test_a_stopped_build_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    made = make(tmp_path / "a")
    whole = {path.relative_to(made.index): path.read_bytes() for path in made.index.rglob("*") if path.is_file()}
    (made.index / "manifest.json").unlink()
    said = json.loads(whole[Path("manifest.json")])
    (made.index / ".made_from").write_text(said["made_from"] + "\n")
    (made.index / "index/task-000002.parquet").unlink()
    kept = (made.index / "index/task-000001.parquet").stat().st_mtime_ns
    from tokenreel.replay.making import Choices, make_index

    choices = Choices(
        normalise="marin",
        source_field="from",
        sources=tmp_path / "a/sources.json",
        mix=tmp_path / "a/mix.json",
        task_documents=25,
    )
    make_index([tmp_path / "a/flat.jsonl"], tmp_path / "a/buckets.parquet", made.index, choices)
    again = {path.relative_to(made.index): path.read_bytes() for path in made.index.rglob("*") if path.is_file()}
    assert again == whole
    assert (made.index / "index/task-000001.parquet").stat().st_mtime_ns == kept
    with pytest.raises(ReplayError, match="RPL001"):
        make_index([tmp_path / "a/flat.jsonl"], tmp_path / "a/buckets.parquet", made.index, Choices(task_documents=24))


def test_a_document_without_a_bucket_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    (tmp_path / "b.jsonl").write_text('{"bucket_id": 3}\n')
    ran = run(
        "replay", "build", tmp_path / "a.jsonl", "--buckets", tmp_path / "b.jsonl", "--out", tmp_path / "o", "--json"
    )
    assert ran.status == 1
    assert ran.json["error"]["code"] == "RPL006"
    assert not (tmp_path / "o/manifest.json").exists()


def test_mixtures_of_others_are_read() -> None:
    mix = parse_mix(
        {
            "train_weights": [[0, {"c00q1": 0.5, "tail": 0.5}], [127_500, {"tail": 1.0}]],
            "tail_buckets": ["c00q0", 4],
            "mixture_block_size": 49_152,
            "shuffle": {"io_block_size": 256, "window_blocks": 512, "perm_type": "feistel"},
        }
    )
    assert [(phase.update, phase.weights) for phase in mix.phases] == [
        (0, {"c00q1": 0.5, "tail": 0.5}),
        (127_500, {"tail": 1.0}),
    ]
    assert (mix.tail, mix.block) == ([0, 4], 49_152)
    text = run_file([Stream(1, 10, 10_000, 11)], mix, Boundary((), (7,)))
    assert 'shuffle = { kind = "block", io_block = 256, window_blocks = 512, permutation = "feistel" }' in text
    assert "1 of 11 documents were not found; not here, of the mixture: c00q0, c00q4" in text


def small_tokenizer(*, adds_bos: bool) -> object:
    vocab = {"<s>": 0, "</s>": 1, "[UNK]": 2, "hi": 3, "there": 4}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["<s>", "</s>"])
    if adds_bos:
        made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer_from_bytes(made.to_str().encode(), name="small")


@pytest.mark.parametrize(
    ("policy", "adds_bos", "ids"),
    [
        ({"bos": "none", "eos": "none"}, True, [3, 4]),
        ({"bos": "none", "eos": "id"}, True, [3, 4, 1]),
        ({"bos": "id", "eos": "id"}, False, [0, 3, 4, 1]),
        ({"bos": "string", "eos": "string"}, False, [0, 3, 4, 1]),
        ({"bos": "probe", "eos": "id"}, True, [0, 3, 4, 1]),
        ({"bos": "probe", "eos": "none"}, False, [0, 3, 4]),
    ],
)
def test_policies_of_beginnings_and_ends(policy: dict[str, str], adds_bos: bool, ids: list[int]) -> None:
    made = tokeniser(small_tokenizer(adds_bos=adds_bos), TokenPolicy(**policy))
    probed = {"probe": "id" if adds_bos else "string"}
    assert made.policy.bos == probed.get(policy["bos"], policy["bos"])
    found, lengths = made.encode(["hi there", "hi"])
    assert found[: lengths[0]].tolist() == ids
    assert lengths.tolist() == [len(ids), len(ids) - 1]


def test_tokens_spelled_in_a_text() -> None:
    spelled = "a<|endoftext|>"
    for said, length in (("text", len(spelled) + 1), ("special", 3)):
        policy = TokenPolicy(special_in_text=said)
        made = tokeniser(load_tokenizer("bytes"), policy, eos="<|endoftext|>")
        assert made.encode([spelled])[1].tolist() == [length]
    with pytest.raises(ReplayError, match="RPL040"):
        tokeniser(load_tokenizer("bytes"), TokenPolicy(special_in_text="maybe"))


def test_long_texts_are_cut_as_pipelines_cut_them() -> None:
    text = "a" * 10_005 + " " + "b" * 10_000 + "\n" + "c"
    assert split_text(text, 10_000) == ["a" * 10_005, " " + "b" * 10_000, "\nc"]
    assert "".join(split_text(text, 10_000, 25_000)) == text
    assert [len(one) for one in split_text("x" * 60_000, 10_000, 25_000)] == [25_000, 25_000, 10_000]


def test_another_corpus_of_the_same_lengths_is_another_index(tmp_path: Path) -> None:
    (tmp_path / "buckets.jsonl").write_text('{"bucket_id": 1}\n' * 3)
    corpus = tmp_path / "corpus"
    documents = [np.array([5, 6, 2]), np.array([7, 2]), np.array([8, 9, 2])]
    pair, buckets = corpus.with_suffix(".idx"), tmp_path / "buckets.jsonl"
    built = ("replay", "build", pair, "--buckets", buckets, "--ids", "tokens", "--source", "web")
    write_corpus(corpus, documents)
    for _ in range(2):
        ran = run(*built, "--out", tmp_path / "index", "--json")
        assert ran.status == 0, ran.err
    write_corpus(corpus, [documents[0], documents[1], np.array([8, 10, 2])])
    ran = run(*built, "--out", tmp_path / "index", "--json")
    assert (ran.status, ran.json["error"]["code"]) == (2, "RPL001")
