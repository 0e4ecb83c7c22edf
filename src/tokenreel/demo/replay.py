"""The act on replay: index the validation documents with buckets, forget their tokens, rebuild them through the index."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenreel.corpus.corpus import Corpus
    from tokenreel.demo.acts import Stage

STEP = 2
ROW_TOKENS = 128


def replay(stage: Stage) -> dict[str, Any]:
    """Index, delete, rebuild from text, prove the identity; trace a step and a document."""
    from tokenreel.corpus.opening import open_corpus

    folder = stage.folder / "replay"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    # A copy of its own, so that it can really be deleted.
    held = folder / "held"
    shutil.copytree(stage.corpus, held)
    corpus = open_corpus(held).split("validation")
    before, documents = corpus.identity().digest, len(corpus)
    index = _index(stage, corpus, folder)
    corpus.close()
    tokenizer = stage.corpus / "tokenizer" / "tokenizer.json"
    shutil.rmtree(held)
    stage.say("deleted the tokens; what is left is the index and the text")
    streams = _rebuild(stage, index, folder, tokenizer)
    after = _prove(stage, streams, before)
    facts = _trace(stage, folder / "streams" / "run.toml")
    return {"documents": documents, "identity": before, "rebuilt": after, "same": before == after, **facts}


def _index(stage: Stage, corpus: Corpus, folder: Path) -> Path:
    from tokenreel.replay.making import Choices, make_index

    # One cluster, and a quality that grows with the documents' length, so that the streams keep the corpus's order.
    rows = [{"domain_cluster": 0, "quality_score": 0.1} for _ in range(len(corpus))]
    (folder / "buckets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = sorted({path.name.split("-")[0].split(".")[0] for path in (stage.folder / "text").glob("*.jsonl")})
    sources = [{"source_id": name, "path": name, "normalize_config": {"text_field": "text"}} for name in names]
    (folder / "sources.json").write_text(json.dumps({"sources": sources}))
    mix = {"sequence_length": ROW_TOKENS, "tokens": {"bos": "none", "eos": "id"}}
    (folder / "mix.json").write_text(json.dumps(mix))
    choices = Choices(sources=folder / "sources.json", mix=folder / "mix.json")
    stage.say(
        "$ tokenreel replay build corpus/validation --buckets replay/buckets.jsonl --out replay/index "
        "--sources replay/sources.json --mix replay/mix.json"
    )
    manifest = make_index([Path(corpus.path) / "validation"], folder / "buckets.jsonl", folder / "index", choices)
    size = sum(file.bytes for file in manifest.files)
    stage.say(f"{manifest.documents:,} documents in {manifest.tasks:,} tasks, {size:,} bytes, no text and no tokens")
    upstream = folder / "upstream"
    for name in names:
        (upstream / name).mkdir(parents=True)
        for path in (stage.folder / "text").glob(f"{name}*.jsonl"):
            shutil.copy(path, upstream / name)
    return folder / "index"


def _rebuild(stage: Stage, index: Path, folder: Path, tokenizer: Path) -> list[dict[str, Any]]:
    from tokenreel.replay import metadata
    from tokenreel.replay.join import JoinPlan, join
    from tokenreel.replay.streams import StreamPlan, write_streams
    from tokenreel.replay.tokens import tokeniser
    from tokenreel.store import LocalStore
    from tokenreel.text import load_tokenizer

    store = LocalStore(index)
    manifest, sources = metadata.read_manifest(store), metadata.read_sources(store)
    stage.say("$ tokenreel replay join replay/index --source-root replay/upstream --out replay/found")
    joined = join(store, manifest, sources, JoinPlan(root=folder / "upstream"), folder / "found")
    for name, counts in joined.by_source.items():
        stage.say(
            f"  {name}: {counts.hits:,} of {counts.wanted:,} found, {counts.extra:,} texts that the index does not want"
        )
    stage.say(
        "$ tokenreel replay streams replay/found --index replay/index --tokenizer corpus/tokenizer/tokenizer.json "
        "--eos '<|endoftext|>' --out replay/streams"
    )
    tok = tokeniser(load_tokenizer(str(tokenizer)), metadata.read_mix(store).tokens, eos="<|endoftext|>")
    streams = write_streams(folder / "found", folder / "streams", manifest, metadata.read_mix(store), tok, StreamPlan())
    return [stream.as_dict() for stream in streams]


def _prove(stage: Stage, streams: list[dict[str, Any]], before: str) -> str:
    from tokenreel.corpus.opening import open_corpus

    (stream,) = streams
    path = stage.folder / "replay" / "streams" / str(stream["name"])
    said = _boundary(stage.folder / "replay" / "streams" / "run.toml")
    corpus = open_corpus(path, boundary=said)
    after = corpus.identity().digest
    corpus.close()
    stage.say(f"identity {after[:16]}..: {'the same' if after == before else 'another one'} as before")
    return after


def _boundary(run: Path) -> str:
    import tomllib

    return str(tomllib.loads(run.read_text("utf-8"))["corpus"][0]["boundary"])


def _trace(stage: Stage, run: Path) -> dict[str, Any]:
    from tokenreel.config.run import load_run
    from tokenreel.replay.trace import Traced, trace_document, trace_step

    # What a run is traced by: how many samples its steps take.
    run.write_text(run.read_text("utf-8") + "\n[schedule]\nbatch = 4\n", "utf-8")
    traced = Traced(load_run(run), run.parent)
    stage.say(f"$ tokenreel trace replay/streams/run.toml --step {STEP}")
    step = trace_step(traced, STEP)
    extents = [extent for row in step["samples"] for extent in row["extents"]]
    stage.say(f"  step {STEP}: {len(step['samples'])} samples, {len(extents)} pieces of documents; {step['level']}")
    document = extents[0]["document"]
    hits = trace_document(traced, [str(document)], None)["hits"]
    seen = sorted({hit["step"] for hit in hits})
    stage.say(f"$ tokenreel trace replay/streams/run.toml --doc '#{document}'")
    stage.say(f"  seen at step{'s' if len(seen) > 1 else ''} {', '.join(map(str, seen[:8]))}")
    return {"step": STEP, "samples": len(step["samples"]), "document": document, "steps": seen}
