"""From a run to an order: its corpora opened, its order made over them. Nothing is shuffled until `prepare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.config import orders as kinds
from tokenreel.corpus.opening import open_corpus

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from tokenreel.config.run import Run, RunCorpus, Schedule
    from tokenreel.corpus.corpus import Corpus
    from tokenreel.order.protocol import Order
    from tokenreel.spans import DocTable, SpanTable

MEGATRON_SEED = 1234
MAXTEXT_SEED = 0
WINDOWS_SEED = 0


@dataclass(frozen=True, slots=True, eq=False)
class Assembled:
    """An order and what it reads; `corpora` and `names` stand at the numbers that its spans use."""

    order: Order
    corpora: tuple[Corpus, ...]
    names: tuple[str, ...]

    def tables(self) -> tuple[DocTable, ...]:
        """Return each corpus's documents."""
        return tuple(corpus.table() for corpus in self.corpora)

    def resolved(self, table: SpanTable) -> SpanTable:
        """Return a table of the order with every extent inside one document."""
        from tokenreel.corpus.resolve import resolve

        return resolve(table, self.tables())


def open_run_corpora(run: Run, folder: str | os.PathLike[str], accept: Sequence[str] = ()) -> dict[str, Corpus]:
    """Open the corpora that a run's order names; paths are relative to `folder`. Raises what `open_corpus` raises."""
    return {corpus.name: _open(corpus, folder, accept) for corpus in run.corpora_used()}


def _open(said: RunCorpus, folder: str | os.PathLike[str], accept: Sequence[str]) -> Corpus:
    if said.path is None:
        from tokenreel.corpus.declared import DeclaredCorpus

        return DeclaredCorpus.of(said.name, said.tokens or 0)
    path = said.path if "://" in said.path else Path(folder) / said.path
    corpus = open_corpus(path, dtype=said.dtype, boundary=said.boundary, vocab=said.vocab, accept=accept)
    return corpus if said.split is None else corpus.split(said.split)


def assemble(
    run: Run,
    folder: str | os.PathLike[str] = ".",
    *,
    accept: Sequence[str] = (),
    cache: str | os.PathLike[str] | None = None,
) -> Assembled:
    """Return a run's order over its opened corpora, not yet prepared.

    Packed components of a mixture are planned here, for a mixture has to know their sizes; plans are kept in `cache`.
    Raises what opening a corpus and making the order raise. Cost: O(shards), and a hash of the tables where a corpus has
    no recorded identity.
    """
    opened = open_run_corpora(run, folder, accept)
    only = run.corpus[0].name
    order, names = _Maker(run, Path(folder), opened, only, cache).make(run.order)
    return Assembled(order, tuple(opened[name] for name in names), tuple(names))


@dataclass(frozen=True, slots=True)
class _Maker:
    run: Run
    folder: Path
    corpora: dict[str, Corpus]
    only: str
    cache: str | os.PathLike[str] | None = None

    def make(self, said: kinds.AnyOrder) -> tuple[Order, list[str]]:
        """Return the order that a table says, and the names of its corpora in its order."""
        if isinstance(said, kinds.Mix):
            return self._mix(said)
        if isinstance(said, kinds.Levanter):
            from tokenreel.index.levanter import levanter_order

            return levanter_order(said, self.run, self.corpora, self.only, self._seed(said.seed, 0), self.make)
        if isinstance(said, kinds.MaxTextBlend | kinds.MaxTextMmapMix):
            used = [member for member in said.member if member.weight > 0]
            return self._blend(said), [member.corpus for member in used]
        if isinstance(said, kinds.MegatronBlendTable):
            return self._megatron_blend(said), [member.corpus for member in said.member]
        names = [name or self.only for name in kinds.corpora_named(said)]
        if isinstance(said, kinds.MaxTextNpy | kinds.MaxTextMmap):
            return self._maxtext(said, [self.corpora[name].table() for name in names]), names
        if isinstance(said, kinds.Megatron | kinds.MegatronFiles):
            return self._megatron(said, self.corpora[names[0]]), names
        if isinstance(said, kinds.Packed):
            return self._packed(said, self.corpora[names[0]]), names
        return self._stream(said, self.corpora[names[0]]), names

    def _packed(self, said: kinds.Packed, corpus: Corpus) -> Order:
        from tokenreel.index.plans import packed_order

        return packed_order(said, corpus, self._seed(said.seed, WINDOWS_SEED))

    def _seed(self, said: int | None, default: int) -> int:
        return next(seed for seed in (said, self.run.seed, default) if seed is not None)

    def _stream(self, said: kinds.AnyOrder, corpus: Corpus) -> Order:
        from tokenreel.order.stream import StreamOrder
        from tokenreel.order.windows import WindowsOrder
        from tokenreel.order.windows_shuffle import BlockShuffle

        table, shards = corpus.stream_table(), corpus.shard_tokens
        if isinstance(said, kinds.Stream):
            # A slice is part of its shards: their sizes then say nothing of it.
            whole = shards if sum(shards) == table.tokens else ()
            return StreamOrder.over(table, said.row_tokens, said.row_ahead, whole)
        if isinstance(said, kinds.Windows):
            io = BlockShuffle(said.io.block, said.io.together) if said.io else None
            seed, epochs = self._seed(said.seed, WINDOWS_SEED), said.epochs or None
            return WindowsOrder.over(table, said.row_tokens, seed, row_ahead=said.row_ahead, epochs=epochs, io=io)
        return self._loader(said, corpus)

    def _loader(self, said: kinds.AnyOrder, corpus: Corpus) -> Order:
        from tokenreel.order.streams_hobbylm import HobbyStream
        from tokenreel.order.streams_llmc import LlmcStream
        from tokenreel.order.streams_nanogpt import NanogptOrder

        table = corpus.stream_table()
        if isinstance(said, kinds.LlmcStreamTable):
            return LlmcStream(
                table.key, said.row_tokens, said.batch, corpus.shard_tokens, said.world, said.shuffle,
                self._seed(said.seed, 42), said.steps, table,
            )  # fmt: skip
        if isinstance(said, kinds.HobbyStreamTable):
            names = tuple(entry.files[0] for entry in corpus.entries)
            return HobbyStream(
                table.key, said.row_tokens, said.batch, corpus.shard_tokens, names, None, said.world, said.walk,
                self._seed(said.seed, 1337), said.steps, table,
            )  # fmt: skip
        if not isinstance(said, kinds.Nanogpt):
            raise TypeError(said)
        return NanogptOrder(
            table.key,
            said.row_tokens,
            said.batch,
            said.world,
            self._seed(said.seed, 1337),
            said.skip,
            said.accumulate,
            said.eval_interval,
            said.eval_iters,
            said.eval_tokens,
            said.first_iteration,
            said.wide,
            said.steps,
            table,
        )

    def _megatron(self, said: kinds.Megatron | kinds.MegatronFiles, corpus: Corpus) -> Order:
        from tokenreel.index.files_order import MegatronFilesOrder, open_arrays
        from tokenreel.order.megatron import MegatronOrder

        if isinstance(said, kinds.MegatronFiles):
            by_sequence = said.unit == "sequence"
            return MegatronFilesOrder.over(
                corpus.sequences() if by_sequence else corpus.table(),
                open_arrays(self.folder / said.folder, said.name),
                said.row_tokens,
                row_ahead=said.row_ahead,
                documents=corpus.table() if by_sequence else None,
            )
        return MegatronOrder.over(
            corpus.sequences(),
            said.row_tokens,
            seed=self._seed(said.seed, MEGATRON_SEED),
            samples=said.samples,
            split=said.split,
            part=said.part,
            row_ahead=said.row_ahead,
            keep_partial=said.keep_partial,
            documents=corpus.table(),
            compat=said.compat,
        )

    def _megatron_blend(self, said: kinds.MegatronBlendTable) -> Order:
        from tokenreel.order.megatron_blend import MegatronBlend

        used = [self.corpora[member.corpus] for member in said.member]
        weights = [member.weight for member in said.member if member.weight is not None]
        return MegatronBlend.over(
            [corpus.sequences() for corpus in used],
            said.row_tokens,
            seed=self._seed(said.seed, MEGATRON_SEED),
            samples=said.samples,
            weights=weights or None,
            surplus=said.surplus,
            arithmetic=said.arithmetic,
            documents=[corpus.table() for corpus in used],
            split=None if said.per_split else said.split,
            part=said.part,
            row_ahead=said.row_ahead,
            keep_partial=said.keep_partial,
            compat=said.compat,
        )

    def _maxtext(self, said: kinds.MaxTextNpy | kinds.MaxTextMmap, tables: list[DocTable]) -> Order:
        from tokenreel.order.maxtext_mmap import MaxTextMmapOrder
        from tokenreel.order.maxtext_npy import MaxTextNpyOrder

        seed = self._seed(said.seed, MAXTEXT_SEED)
        if isinstance(said, kinds.MaxTextMmap):
            return MaxTextMmapOrder.over(
                tables, said.row_tokens, seed=seed, shuffled=said.shuffled, epochs=said.epochs, compat=said.compat
            )
        return MaxTextNpyOrder.over(
            tables,
            said.row_tokens,
            seed=seed,
            samples=said.samples,
            epochs=said.epochs,
            num_epoch=said.num_epoch,
            split=said.split,
            split_index=said.split_index,
        )

    def _blend(self, said: kinds.MaxTextBlend | kinds.MaxTextMmapMix) -> Order:
        from tokenreel.order.maxtext_blend import MaxTextBlendOrder
        from tokenreel.order.maxtext_mmap_mix import MaxTextMmapMixOrder

        tables = [self.corpora[member.corpus].table() for member in said.member]
        weights = [member.weight for member in said.member]
        seed = self._seed(said.seed, MAXTEXT_SEED)
        if isinstance(said, kinds.MaxTextMmapMix):
            return MaxTextMmapMixOrder.over(
                tables, weights, said.row_tokens, hosts=said.hosts, seed=seed, shuffled=said.shuffled,
                epochs=said.epochs, compat=said.compat,
            )  # fmt: skip
        return MaxTextBlendOrder.over(
            tables, weights, said.row_tokens, seed=seed, samples=said.samples, num_epoch=said.num_epoch,
            split=said.split, split_index=said.split_index, margin=said.margin, compat=said.compat,
        )  # fmt: skip

    def _mix(self, said: kinds.Mix) -> tuple[Order, list[str]]:
        from tokenreel.index.plans import planned
        from tokenreel.order.mix import Component, MixOrder
        from tokenreel.order.mix_phases import Phase
        from tokenreel.pack.packed import PackedOrder

        components, names = [], []
        for part in said.component:
            order, used = self.make(kinds.component_order(part))
            if isinstance(order, PackedOrder):
                order = planned(order, self.cache)[0]
            components.append(Component(part.name, order, part.at_end, part.cap))
            names += used
        phases = [Phase(0, tuple(part.weight or 0.0 for part in said.component))]
        if said.phase:
            order_of = [part.name for part in said.component]
            phases = [
                Phase(begins_at(phase, self.run.schedule), tuple(phase.weights.get(name, 0.0) for name in order_of))
                for phase in said.phase
            ]
        seed = self._seed(said.seed, 0)
        return MixOrder(tuple(components), tuple(phases), seed, said.block, said.samples), names


def begins_at(phase: kinds.MixPhase, schedule: Schedule | None) -> int:
    """Return the sample that a phase begins at; steps are converted with the schedule."""
    if phase.sample is not None:
        return phase.sample
    return schedule.samples(0, phase.step or 0) if schedule is not None else 0
