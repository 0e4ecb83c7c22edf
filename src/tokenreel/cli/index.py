"""Commands on index files: index convert, blend, check."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tokenreel.cli import options
from tokenreel.cli.output import note, print_json, print_line


class Layout(StrEnum):
    """Whose files."""

    maxtext = "maxtext"
    megatron = "megatron"


class Part(StrEnum):
    """Megatron's parts."""

    train = "train"
    valid = "valid"
    test = "test"


class Arithmetic(StrEnum):
    """How a blend's weights are multiplied."""

    x86 = "x86"
    fused = "fused"


LayoutOption = Annotated[Layout, typer.Option("--layout", help="maxtext, or megatron: its cache files and texts.")]
SeqLength = Annotated[int, typer.Option("--seq-length", help="Input tokens of a sample.")]
Seed = Annotated[int, typer.Option("--seed", help="1234 as in both builders; a MaxText run's own default is 0.")]
Split = Annotated[str | None, typer.Option("--split", help="Split string, hashed as it is spelled.")]
SplitIndex = Annotated[int, typer.Option("--split-index", help="MaxText: which share of the split.")]
ExtraToken = Annotated[int, typer.Option("--add-extra-token", help="1: a sample has a look-ahead, as every run reads.")]
Margin = Annotated[float, typer.Option("--margin", help="Percent each dataset is built larger; Megatron's surplus.")]
PartOption = Annotated[Part, typer.Option("--part", help="Megatron: which part of the split.")]
PerSplit = Annotated[bool, typer.Option("--per-split", help="Megatron: the prefixes are this part's alone.")]
ArithmeticOption = Annotated[Arithmetic, typer.Option("--arithmetic", help="fused: as on ARM hosts.")]
Tokenizer = Annotated[
    str | None,
    typer.Option("--tokenizer-identity", help="Megatron: JSON of the tokenizer's identity, or a file that holds it."),
]
CreatedAt = Annotated[
    str, typer.Option("--created-at", help="A time for MaxText's metadata; none is taken from the clock.")
]
Datasets = Annotated[str, typer.Option("--datasets", help="path,weight;path,weight; Megatron also without weights.")]

index_app = typer.Typer(help="Build and check index files of Megatron and MaxText.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    index_app.registered_commands.clear()
    index_app.command("convert")(convert_command)
    index_app.command("blend")(blend_command)
    index_app.command("check")(check_command)
    app.add_typer(index_app, name="index")


def convert_command(  # noqa: PLR0913 (a command has as many options as it has)
    inputs: Annotated[list[str], typer.Option("--input", help="A prefix or a directory of pairs; repeatable.")],
    output_dir: Annotated[Path, typer.Option("--output-dir", help="Where the files go.")],
    seq_length: SeqLength,
    *,
    more: Annotated[list[str] | None, typer.Argument(help="Further inputs, as in --input A B.")] = None,
    num_samples: Annotated[int | None, typer.Option("--num-samples", help="Samples the run asks for.")] = None,
    num_epochs: Annotated[int | None, typer.Option("--num-epochs", help="MaxText: or whole epochs.")] = None,
    seed: Seed = 1234,
    split: Split = None,
    split_index: SplitIndex = 0,
    add_extra_token: ExtraToken = 1,
    layout: LayoutOption = Layout.maxtext,
    part: PartOption = Part.train,
    per_split: PerSplit = False,
    tokenizer_identity: Tokenizer = None,
    created_at: CreatedAt = "1970-01-01T00:00:00+00:00",
    accept: options.Accept = None,
    json: options.Json = False,
) -> None:
    """Build the index of one dataset, for MaxText or for Megatron."""
    from tokenreel.index.request import IndexRequest, read_tokenizer

    if add_extra_token != 1:
        note("warning: no run reads an index without the extra token: its name has another hash")
    request = IndexRequest(
        seq_length,
        inputs=(*inputs, *(more or ())),
        layout=layout.value,
        samples=num_samples,
        epochs=num_epochs,
        seed=seed,
        split=split,
        split_index=split_index,
        add_extra_token=add_extra_token,
        part=part.value,
        per_split=per_split,
        tokenizer=read_tokenizer(tokenizer_identity) if tokenizer_identity else {},
        created_at=created_at,
        accept=tuple(accept or ()),
    )
    _put(output_dir, request, as_json=json)


def blend_command(  # noqa: PLR0913 (as above)
    datasets: Datasets,
    output_dir: Annotated[Path, typer.Option("--output-dir", help="Root of the files.")],
    seq_length: SeqLength,
    *,
    total_samples: Annotated[int | None, typer.Option("--total-samples", help="Steps times global batch.")] = None,
    seed: Seed = 1234,
    split: Split = None,
    split_index: SplitIndex = 0,
    margin: Margin = 0.5,
    max_workers: Annotated[int | None, typer.Option("--max-workers", help="Taken and not needed.", hidden=True)] = None,  # noqa: ARG001
    add_extra_token: ExtraToken = 1,
    layout: LayoutOption = Layout.maxtext,
    part: PartOption = Part.train,
    per_split: PerSplit = False,
    arithmetic: ArithmeticOption = Arithmetic.x86,
    tokenizer_identity: Tokenizer = None,
    created_at: CreatedAt = "1970-01-01T00:00:00+00:00",
    accept: options.Accept = None,
    json: options.Json = False,
) -> None:
    """Build the indices of a blend: each dataset's, and the dispatch."""
    from tokenreel.index.request import IndexRequest, read_tokenizer

    request = IndexRequest(
        seq_length,
        datasets=datasets,
        layout=layout.value,
        samples=total_samples,
        seed=seed,
        split=split,
        split_index=split_index,
        add_extra_token=add_extra_token,
        margin=margin,
        part=part.value,
        per_split=per_split,
        arithmetic=arithmetic.value,
        tokenizer=read_tokenizer(tokenizer_identity) if tokenizer_identity else {},
        created_at=created_at,
        accept=tuple(accept or ()),
    )
    _put(output_dir, request, as_json=json)


def check_command(  # noqa: PLR0913 (as above)
    folder: Annotated[Path, typer.Argument(help="The index directory.")],
    seq_length: SeqLength,
    *,
    corpus: Annotated[
        list[str] | None,
        typer.Option("--corpus", help="A prefix or a directory of pairs, as the job spells it; repeatable."),
    ] = None,
    datasets: Annotated[str | None, typer.Option("--datasets", help="Or a blend: path,weight;path,weight.")] = None,
    num_samples: Annotated[
        int | None, typer.Option("--num-samples", "--total-samples", help="Samples the run asks for.")
    ] = None,
    num_epochs: Annotated[int | None, typer.Option("--num-epochs", help="MaxText: or whole epochs.")] = None,
    seed: Seed = 1234,
    split: Split = None,
    split_index: SplitIndex = 0,
    add_extra_token: ExtraToken = 1,
    margin: Margin = 0.5,
    eod: Annotated[int | None, typer.Option("--eod", help="The id that must end every document.")] = None,
    layout: LayoutOption = Layout.maxtext,
    part: PartOption = Part.train,
    per_split: PerSplit = False,
    arithmetic: ArithmeticOption = Arithmetic.x86,
    tokenizer_identity: Tokenizer = None,
    accept: options.Accept = None,
    json: options.Json = False,
) -> None:
    """Say whether an index directory is what these inputs give.

    The first difference of every file is shown.

    Exit status: 0 the same, 1 a difference.
    """
    from tokenreel.index.check import check_index
    from tokenreel.index.request import IndexRequest, read_tokenizer

    request = IndexRequest(
        seq_length,
        inputs=tuple(corpus or ()),
        datasets=datasets,
        layout=layout.value,
        samples=num_samples,
        epochs=num_epochs,
        seed=seed,
        split=split,
        split_index=split_index,
        add_extra_token=add_extra_token,
        margin=margin,
        part=part.value,
        per_split=per_split,
        arithmetic=arithmetic.value,
        tokenizer=read_tokenizer(tokenizer_identity) if tokenizer_identity else {},
        accept=tuple(accept or ()),
    )
    checked = check_index(folder, request, eod=eod)
    if json:
        print_json(checked.as_dict())
    else:
        for one in checked.differences:
            print_line(f"{one.code} {one.file}: {one.what} (expected {one.expected}, found {one.found})")
        state = "differs" if checked.differences else "is what these inputs give"
        looked = "" if checked.eod_documents is None else f", {checked.eod_documents:,} documents looked at for the EOD"
        print_line(f"{folder} {state}: {checked.files:,} files compared{looked}")
    raise typer.Exit(1 if checked.differences else 0)


def _put(folder: Path, request: object, *, as_json: bool) -> None:
    from tokenreel.index.files import put
    from tokenreel.index.request import IndexRequest

    if not isinstance(request, IndexRequest):
        raise TypeError(request)
    sets = request.sets()
    done = put(folder, sets)
    shapes = {files.path(name): list(array.shape) for files in sets for name, array in files.arrays.items()}
    if as_json:
        print_json({"folder": str(folder), "written": done.written, "kept": done.kept, "arrays": shapes})
        return
    for name in (*done.written, *done.kept):
        shape = " x ".join(f"{size:,}" for size in shapes.get(name, []))
        print_line(f"{'written' if name in done.written else 'kept':7}  {name}  {shape}".rstrip())
