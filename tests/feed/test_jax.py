"""The JAX rim: global arrays on any mesh, the rows each host has to load, and a state that any mesh goes on from."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.feed.jobs import ROW, made_order, write_data
from tokenreel.errors import UsageError
from tokenreel.feed.jax import Hosts, host_rows, open_jax_feed
from tokenreel.feed.opening import open_feed

jax = pytest.importorskip("jax")
P = jax.sharding.PartitionSpec


def sharding(shape: tuple[int, ...], *spec: Any, names: tuple[str, ...] = ("data", "model")) -> Any:
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    return jax.sharding.NamedSharding(jax.sharding.Mesh(devices, names[: len(shape)]), P(*spec))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert len(jax.devices()) == 6
    return write_data(tmp_path_factory.mktemp("jax"))


@pytest.fixture(scope="module")
def whole(folder: Path) -> list[Any]:
    with open_feed(made_order(folder, "windows"), rows="documents", batch=6, last="drop") as feed:
        return [{name: array.copy() for name, array in batch.arrays.items()} for batch in feed]


LAYOUTS = [
    ((1,), ("data",)),
    ((6,), ("data",)),
    ((3,), ("data",)),
    ((3, 2), ("data", None)),
    ((3, 2), ("data", "model")),
    ((2, 2), (None, "model")),
    ((2, 3), (("data", "model"),)),
]


@pytest.mark.parametrize(("shape", "spec"), LAYOUTS, ids=str)
def test_batches_are_global_arrays(shape: tuple[int, ...], spec: Any, folder: Path, whole: list[Any]) -> None:
    asked = sharding(shape, *spec)
    with open_jax_feed(made_order(folder, "windows"), asked, rows="documents", batch=6) as feed:
        batches = list(feed)
    assert len(batches) == len(whole)
    for batch, expected in zip(batches, whole, strict=True):
        for name, array in expected.items():
            found = batch[name]
            assert isinstance(found, jax.Array)
            assert found.sharding.is_equivalent_to(asked, 2)
            assert np.array_equal(np.asarray(found), array)
    assert batches[1].position == 6
    assert batches[1].samples.tolist() == list(range(6, 12))


def test_a_state_goes_on_in_another_mesh_and_batch(folder: Path, whole: list[Any]) -> None:
    with open_jax_feed(made_order(folder, "windows"), sharding((6,), "data"), rows="documents", batch=6) as feed:
        next(feed)
        state = json.loads(json.dumps(feed.state_dict()))
    other = sharding((2,), "data")
    with open_jax_feed(made_order(folder, "windows"), other, rows="documents", batch=4, state=state) as feed:
        assert feed.state_dict() == state
        assert np.array_equal(np.asarray(next(feed)["labels"]), whole[1]["labels"][:4])


def test_edges_of_documents_lie_with_their_rows(folder: Path) -> None:
    rows = {"kind": "documents", "cu_seqlens": "rows", "attention": "mask"}
    asked = sharding((3, 2), "data", "model")
    with open_jax_feed(made_order(folder, "windows"), asked, rows=rows, batch=6) as feed:
        batch = next(feed)
    assert batch["cu_seqlens"].shape == (6, ROW + 1)
    assert batch["attention_mask"].shape == (6, 1, ROW, ROW)
    assert batch["cu_seqlens"].sharding.spec == P("data")
    flat = {"kind": "documents", "cu_seqlens": "batch"}
    with open_jax_feed(made_order(folder, "windows"), asked, rows=flat, batch=6) as feed:
        assert isinstance(next(feed)["max_seqlen"], np.ndarray | np.generic)


def hosts_of(count: int) -> Any:
    """Pretend that neighbouring devices are on one host."""
    return lambda device: device.id * count // 6


def test_rows_of_hosts_follow_from_the_sharding() -> None:
    assert host_rows(sharding((6,), "data"), (12, ROW), hosts_of(2)) == {0: tuple(range(6)), 1: tuple(range(6, 12))}
    # Devices that hold the same rows, on two hosts.
    same = host_rows(sharding((2, 3), None, "model"), (4, 9), hosts_of(2))
    assert same == {0: (0, 1, 2, 3), 1: (0, 1, 2, 3)}
    # Each host has every other pair of rows.
    mixed = host_rows(sharding((6,), "data"), (6, ROW), lambda device: device.id % 2)
    assert mixed == {0: (0, 2, 4), 1: (1, 3, 5)}
    with pytest.raises(UsageError, match="USE003"):
        # Three hosts of two devices, rows over three of them in pairs: 0 and 1 share some rows.
        host_rows(sharding((2, 3), "data", None), (4, ROW), lambda device: (0, 1, 1, 1, 2, 2)[device.id])


@pytest.mark.parametrize(
    "process_of", [hosts_of(2), hosts_of(3), lambda device: device.id % 3], ids=["2", "3", "mixed"]
)
def test_hosts_together_load_every_row_once(process_of: Any, folder: Path, whole: list[Any]) -> None:
    asked = sharding((6,), "data")
    processes = sorted({process_of(device) for device in jax.devices()})
    found = np.zeros_like(whole[0]["labels"])
    for process in processes:
        hosts = Hosts(asked, ROW, process, process_of)
        rank, world = hosts.place(6)
        assert world == len(processes)
        with open_feed(
            made_order(folder, "windows"), rows="documents", batch=6, rank=rank, world=world, placement=hosts
        ) as feed:
            batch = next(feed)
            found[batch.samples] += batch["labels"]
    assert np.array_equal(found, whole[0]["labels"])


def test_what_the_sharding_says_cannot_be_said_again(folder: Path) -> None:
    with pytest.raises(UsageError, match="USE003"):
        open_jax_feed(made_order(folder, "windows"), sharding((2,), "data"), batch=6, world=2)


def test_endless_feeds_begin_again(folder: Path, whole: list[Any]) -> None:
    made = made_order(folder, "windows")
    length = made.order.length
    with open_jax_feed(made, sharding((3,), "data"), rows="documents", batch=6, endless=True) as feed:
        batches = [next(feed) for _ in range(length // 6 + 2)]
    assert batches[-1].samples.tolist() == [(batches[-1].position + k) % length for k in range(6)]


def test_the_probe_asks_a_jax_model(folder: Path) -> None:
    import jax.numpy as jnp

    from tokenreel.testing import mask_probe

    table = jax.random.normal(jax.random.PRNGKey(0), (30_000, 8))

    def model(masked: bool) -> Any:
        def run(arrays: dict[str, Any]) -> Any:
            x = table[arrays["input_ids"]]
            may = jnp.tri(ROW, dtype=bool)[None]
            if masked:
                may = may & (arrays["segment_ids"][:, :, None] == arrays["segment_ids"][:, None, :])
            scores = jnp.where(may, jnp.einsum("bqd,bkd->bqk", x, x), -jnp.inf)
            return jax.nn.softmax(scores) @ x

        return run

    with open_feed(made_order(folder, "windows"), rows="documents", batch=3) as feed:
        arrays = next(feed).arrays
    assert mask_probe(model(masked=True), arrays, vocab=30_000, tolerance=1e-5).holds
    assert not mask_probe(model(masked=False), arrays, vocab=30_000, tolerance=1e-5).holds


# ---- several hosts ---------------------------------------------------------------------------------------------------


def one_host(process: int, count: int, address: str, folder: str, out: str) -> None:
    """One host of a JAX job: what it loads follows from the mesh over all hosts' devices."""
    jax.distributed.initialize(address, num_processes=count, process_id=process)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    rows = jax.sharding.NamedSharding(mesh, P("data"))
    found = []
    with open_jax_feed(made_order(Path(folder), "windows"), rows, rows="documents", batch=6) as feed:
        for batch in feed:
            labels = batch["labels"]
            assert labels.shape == (6, ROW)
            parts = {shard.index[0].start or 0: np.asarray(shard.data).tolist() for shard in labels.addressable_shards}
            found.append([batch.samples.tolist(), [row for start in sorted(parts) for row in parts[start]]])
        state = feed.state_dict()
    Path(f"{out}-{process}").write_text(json.dumps([found, state]))


def free_address() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


def test_hosts_of_a_real_job_load_their_own_rows(warm: Any, folder: Path, whole: list[Any], tmp_path: Path) -> None:
    said = [2, free_address(), str(folder), str(tmp_path / "rows")]
    outputs = [tmp_path / f"output-{host}" for host in (0, 1)]
    flags = "--xla_force_host_platform_device_count=3"
    children = [
        warm.start("tests.feed.test_jax:one_host", host, *said, output=outputs[host], XLA_FLAGS=flags)
        for host in (0, 1)
    ]
    for child, output in zip(children, outputs, strict=True):
        ended = warm.wait(child, output=output)
        assert ended.status == 0, ended.output
    (first, state), (second, other) = (json.loads((tmp_path / f"rows-{host}").read_text()) for host in (0, 1))
    assert state == other
    for step, expected in enumerate(whole):
        assert first[step][0] + second[step][0] == list(range(6 * step, 6 * step + 6))
        assert first[step][1] + second[step][1] == expected["labels"].tolist()
