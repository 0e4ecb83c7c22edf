"""The loops of Megatron's greedy dispatch: the same choices for few members, many, and any.

For many members the next samples are dealt with together. An *instance* is one taking of one member: its error,
``share*s - taken``, depends on nothing that is chosen meanwhile. Instances whose error comes up to a floor within the
next `WINDOW` samples are put in a queue by the sample at which it does; no choice was lately made below the floor. Then
eight samples at a time are chosen from the 32 instances in front, all in vector registers. Where that is not certain to
be exact (equal errors, more instances due, a best error below the floor) the samples are chosen one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import before_compiling, fused, inlined, kernel

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW = 1024
STEP = 16
"""Samples chosen at once."""
FRONT = 40
"""Instances they are chosen from; a multiple of eight."""
SLACK = 1e-3
"""More than any rounding of a product below 2**40."""
SIGNATURE = "void(float64[::1], float64[::1], float64[::1], boolean, int16[::1], int64[::1])"


@inlined
def error_of(share: Any, taken: Any, contract: bool, k: int, at: float) -> Any:
    """Return how far member `k` is behind its share, in either arithmetic."""
    if contract and k > 0:
        return fused(share, at, -taken)
    return share * at - taken


# ---- few members ------------------------------------------------------------------------------------------------------


@kernel(SIGNATURE)
def choose_of_four(share: Any, taken: Any, limits: Any, contract: bool, members: Any, numbers: Any) -> None:
    """Choose among exactly four members, some of which may have nothing to give; all state stays in registers."""
    w0, w1, w2, w3 = share[0], share[1], share[2], share[3]
    t0, t1, t2, t3 = taken[0], taken[1], taken[2], taken[3]
    for s in range(len(members)):
        at = max(np.float64(s), 1.0)
        a = w0 * at - t0
        b = error_of(w1, t1, contract, 1, at)
        c = error_of(w2, t2, contract, 2, at)
        d = error_of(w3, t3, contract, 3, at)
        low = np.int64(b > a)
        high = np.int64(d > c) + 2
        best = high if max(c, d) > max(a, b) else low
        taken_of_best = (t1 if best == 1 else t0) if best < 2 else (t3 if best == 3 else t2)
        members[s] = best
        numbers[s] = np.int64(taken_of_best)
        after = taken_of_best + 1.0
        if after == limits[best]:
            after = np.inf
        t0 = after if best == 0 else t0
        t1 = after if best == 1 else t1
        t2 = after if best == 2 else t2
        t3 = after if best == 3 else t3


@inlined
def choose_one(s: int, share: Any, taken: Any, limits: Any, contract: bool, members: Any, numbers: Any) -> Any:
    """Look at every member for sample `s`; return the error of the one chosen."""
    at = max(np.float64(s), 1.0)
    best = 0
    most = share[0] * at - taken[0]
    if contract:
        for k in range(1, len(share)):
            error = fused(share[k], at, -taken[k])
            if error > most:
                most = error
                best = k
    else:
        for k in range(1, len(share)):
            error = share[k] * at - taken[k]
            if error > most:
                most = error
                best = k
    members[s] = best
    numbers[s] = np.int64(taken[best])
    taken[best] += 1.0
    if taken[best] == limits[best]:
        taken[best] = np.inf
    return most


@kernel(SIGNATURE)
def choose_of_all(share: Any, taken: Any, limits: Any, contract: bool, members: Any, numbers: Any) -> None:
    """Look at every member for every sample."""
    for s in range(len(members)):
        choose_one(s, share, taken, limits, contract, members, numbers)


# ---- many members -----------------------------------------------------------------------------------------------------


def choose_front(
    share: Any, taken: Any, member: Any, head: int, at: float, contract: bool, chosen: Any
) -> tuple[int, int, float]:
    """Choose samples at, at + 1, .. from the `FRONT` instances from `head` on, each once.

    `chosen` gets, for each sample, a bit for every instance with the greatest error. Returns what is not 0 if one of
    them has two bits, all bits, and the least of the greatest errors. In kernels it is vector code.
    """
    several, gone, low = 0, 0, np.inf
    for j in range(STEP):
        errors = [
            -np.inf
            if gone >> i & 1 or taken[k] == np.inf
            else error_of(share[k], taken[k], contract, member[k], at + j)
            for i, k in enumerate(range(head, head + FRONT))
        ]
        most = max(errors)
        bits = sum((error == most) << i for i, error in enumerate(errors))
        chosen[j] = bits
        several |= bits & (bits - 1)
        gone |= bits
        low = min(low, most)
    return several, gone, low


def lowest(bits: int) -> int:
    """Return the number of the lowest bit that is set.

    >>> lowest(0b101000)
    3
    """
    return (bits & -bits).bit_length() - 1


@inlined
def enqueue(
    s: int, stop: int, floor: float, share: Any, taken: Any, limits: Any, shares: Any, takings: Any, member: Any,
    ends: Any, work: Any, work_tags: Any,
) -> bool:  # fmt: skip
    """Queue every instance that may come up to `floor` before `stop`, by when; False: they are too many.

    ``ends[k]`` becomes the end of those that may be there at sample ``s + k``. (Indices without a sign are not tested
    for being below zero.)
    """
    total, zero, last = np.uint64(0), np.int64(0), np.float64(stop - s)
    ends[:] = 0
    for k in range(len(share)):
        left = (stop + 1) * share[k] - taken[k] - floor + SLACK
        if left <= 0.0:
            continue
        taking = taken[k]
        # At or before the sample where the error is at the floor; two samples are more than any rounding here.
        apart = 1.0 / share[k]
        after = (taking + floor - SLACK) * apart - s
        while left > 0.0 and taking < limits[k]:
            if total == np.uint64(len(work)):
                return False
            slot = np.uint64(np.int64(min(after, last)) - 1 if after >= 2.0 else zero)
            work[total] = taking
            work_tags[0, total] = k
            work_tags[1, total] = slot
            ends[slot] += 1
            total += np.uint64(1)
            taking += 1.0
            left -= 1.0
            after += apart
    before = zero
    for k in range(stop - s):
        here = ends[k]
        ends[k] = before
        before += here
    for k in range(before):
        slot, owner = np.uint64(work_tags[1, k]), np.uint64(work_tags[0, k])
        place = np.uint64(ends[slot])
        ends[slot] += 1
        shares[place] = share[owner]
        takings[place] = work[k]
        member[place] = owner
    for k in range(before, before + FRONT):
        shares[k] = 0.0
        takings[k] = np.inf
        member[k] = len(share)
    return True


@inlined
def move(shares: Any, takings: Any, member: Any, a: Any, b: Any) -> None:
    """Put the instance at `a` in the place of the one at `b`."""
    shares[b] = shares[a]
    takings[b] = takings[a]
    member[b] = member[a]


@inlined
def choose_steps(
    s: int, stop: int, head: int, floor: float, contract: bool, shares: Any, takings: Any, member: Any, ends: Any,
    taken: Any, members: Any, numbers: Any,
) -> Any:  # fmt: skip
    """Choose `STEP` samples at once as long as that is exact; return (samples chosen, least of their errors).

    ``ends[0]`` is that of sample `s`.
    """
    begin = s
    least = np.inf
    chosen = np.empty(STEP, np.int64)
    while s + STEP <= stop and ends[s - begin + STEP - 1] <= head + FRONT:
        several, gone, low = choose_front(shares, takings, member, head, np.float64(s), contract, chosen)
        if several != 0 or low < floor:
            break
        for j in range(STEP):
            p = np.uint64(head + lowest(chosen[j]))
            k = np.uint64(member[p])
            members[s + j] = k
            numbers[s + j] = np.int64(takings[p])
            taken[k] = takings[p] + 1.0
        # As many are left among the first STEP as were chosen behind them: these go there.
        rest = ~gone & ((1 << STEP) - 1)
        holes = gone >> STEP << STEP
        while rest:
            move(shares, takings, member, np.uint64(head + lowest(rest)), np.uint64(head + lowest(holes)))
            rest &= rest - 1
            holes &= holes - 1
        least = min(least, low)
        head += STEP
        s += STEP
    return s - begin, least


@inlined
def choose_queued(
    s: int, head: int, end: int, floor: float, contract: bool, shares: Any, takings: Any, member: Any, taken: Any,
    members: Any, numbers: Any,
) -> Any:  # fmt: skip
    """Choose one sample from all that are due; return its error, or -inf where it is below the floor: nothing was done."""
    most = -np.inf
    best = head
    for p in range(head, end):
        error = error_of(shares[p], takings[p], contract, member[p], np.float64(s))
        if error > most or (error == most and member[p] < member[best]):
            most = error
            best = p
    if most < floor:
        return -np.inf
    k = member[best]
    members[s] = k
    numbers[s] = np.int64(takings[best])
    taken[k] = takings[best] + 1.0
    move(shares, takings, member, head, best)
    return most


@kernel(SIGNATURE)
def choose_of_many(share: Any, taken: Any, limits: Any, contract: bool, members: Any, numbers: Any) -> None:
    """Choose as `choose_of_all` does; for products of share and sample below 2**40."""
    samples = len(members)
    margin = min(0.04, 4.0 / len(share))
    room = 4 * (WINDOW + len(share))
    shares, takings, member = np.empty(room + FRONT), np.empty(room + FRONT), np.empty(room + FRONT, np.int64)
    work, work_tags, ends = np.empty(room), np.empty((2, room), np.int64), np.empty(WINDOW, np.int64)
    floor = np.inf
    s = 0
    while s < samples:
        stop = min(s + WINDOW, samples)
        least = np.inf
        head = 0
        first = s
        scan = s + 1  # samples before it are chosen among all members
        if floor < np.inf:
            queued = enqueue(s, stop, floor, share, taken, limits, shares, takings, member, ends, work, work_tags)
            scan = s if queued else stop
        while s < stop and s >= scan:
            done, error = choose_steps(
                s, stop, head, floor, contract, shares, takings, member, ends[s - first :], taken, members, numbers
            )
            least = min(least, error)
            head += done
            s += done
            # What stopped it is over after as many samples, chosen one by one.
            singly = min(s + STEP, stop)
            while s < singly and scan <= s:
                error = choose_queued(
                    s, head, ends[s - first], floor, contract, shares, takings, member, taken, members, numbers
                )
                if error == -np.inf:
                    scan = s + 1
                    least = np.inf
                    break
                least = min(least, error)
                head += 1
                s += 1
        if s < scan:
            for k in range(len(share)):
                if taken[k] >= limits[k]:
                    taken[k] = np.inf
            while s < scan and s < samples:
                least = min(least, choose_one(s, share, taken, limits, contract, members, numbers))
                s += 1
        floor = least - margin


# ---- vector code ------------------------------------------------------------------------------------------------------


@before_compiling
def _lower() -> None:
    """Make `choose_front` and `lowest` known to numba."""
    from numba import types
    from numba.extending import intrinsic, overload

    @intrinsic
    def front(typing: Any, share: Any, taken: Any, member: Any, head: Any, at: Any, contract: Any, chosen: Any) -> Any:  # noqa: ARG001
        returned = types.Tuple((types.int64, types.int64, types.float64))  # type: ignore[no-untyped-call]
        return returned(share, taken, member, head, at, contract, chosen), _vectors

    @intrinsic
    def trailing(typing: Any, bits: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            from llvmlite import ir  # type: ignore[import-untyped]

            return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

        return types.int64(types.int64), generate

    @overload(choose_front, strict=False, inline="always")
    def compiled_front(share: Any, taken: Any, member: Any, head: Any, at: Any, contract: Any, chosen: Any) -> Any:  # noqa: ARG001
        return lambda share, taken, member, head, at, contract, chosen: front(  # type: ignore[call-arg]  # noqa: PLW0108
            share, taken, member, head, at, contract, chosen
        )

    @overload(lowest, strict=False, inline="always")
    def compiled_lowest(bits: Any) -> Any:  # noqa: ARG001
        return lambda bits: trailing(bits)  # type: ignore[call-arg]  # noqa: PLW0108


def _vectors(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit `choose_front`: groups of eight instances in vectors, `STEP` samples unrolled, no branch but the arithmetic's."""
    from llvmlite import ir

    share, taken, member, head, at, contract, chosen = (
        context.make_array(kind)(context, builder, value).data if hasattr(kind, "layout") else value
        for kind, value in zip(signature.args, arguments, strict=True)
    )
    i8, i32, i64, f64 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.DoubleType()
    eight, whole = ir.VectorType(f64, 8), ir.VectorType(i64, 8)
    groups = range(FRONT // 8)

    def moved(vector: Any, lanes: list[int]) -> Any:
        return builder.shuffle_vector(
            vector, ir.Constant(vector.type, ir.Undefined), ir.Constant(ir.VectorType(i32, 8), lanes)
        )

    def everywhere(value: Any) -> Any:
        one = builder.insert_element(ir.Constant(eight, ir.Undefined), value, ir.Constant(i32, 0))
        return moved(one, [0] * 8)

    def loaded(data: Any, kind: Any, group: int) -> Any:
        place = builder.gep(data, [builder.add(head, ir.Constant(i64, 8 * group))])
        found = builder.load(builder.bitcast(place, kind.as_pointer()))
        found.align = 8
        return found

    def greater(a: Any, b: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", a, b), a, b)

    def lesser(a: Any, b: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", a, b), a, b)

    def bits_of(masks: list[Any]) -> Any:
        bits = ir.Constant(i64, 0)
        for group, mask in enumerate(masks):
            byte = builder.zext(builder.bitcast(mask, i8), i64)
            bits = builder.or_(bits, builder.shl(byte, ir.Constant(i64, 8 * group)))
        return bits

    def emit(error: Callable[[int, Any, Any], Any]) -> list[Any]:
        several, gone, low = ir.Constant(i64, 0), ir.Constant(i64, 0), None
        left = takings
        for j in range(STEP):
            now = everywhere(builder.fadd(at, ir.Constant(f64, float(j))))
            most_taken = ir.Constant(eight, [float("inf")] * 8)
            errors = [error(g, now, left[g]) for g in groups]
            level = errors
            while len(level) > 1:
                paired = [greater(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
                level = paired + level[2 * len(paired) :]
            most = level[0]
            for lanes in ([4, 5, 6, 7, 0, 1, 2, 3], [2, 3, 0, 1, 6, 7, 4, 5], [1, 0, 3, 2, 5, 4, 7, 6]):
                most = greater(most, moved(most, lanes))
            hit = [builder.fcmp_ordered("==", errors[g], most) for g in groups]
            left = [builder.select(hit[g], most_taken, left[g]) for g in groups]
            bits = bits_of(hit)
            gone = builder.or_(gone, bits)
            builder.store(bits, builder.gep(chosen, [ir.Constant(i64, j)]))
            several = builder.or_(several, builder.and_(bits, builder.sub(bits, ir.Constant(i64, 1))))
            low = most if low is None else builder.select(builder.fcmp_ordered("<", most, low), most, low)
        return [several, gone, builder.extract_element(low, ir.Constant(i32, 0))]

    kind = ir.FunctionType(eight, [eight] * 3)
    fma = builder.module.declare_intrinsic("llvm.fma.v8f64", (), kind)
    shares, takings = ([loaded(data, eight, g) for g in groups] for data in (share, taken))

    def twice(g: int, now: Any, taken: Any) -> Any:
        return builder.fsub(builder.fmul(shares[g], now), taken)

    def once(g: int, now: Any, taken: Any) -> Any:
        first = builder.icmp_signed("==", loaded(member, whole, g), ir.Constant(whole, [0] * 8))
        exact = builder.call(fma, [shares[g], now, builder.fneg(taken)])
        return builder.select(first, twice(g, now, taken), exact)

    with builder.if_else(contract) as (then, otherwise):
        with then:
            fused_results, fused_end = emit(once), builder.block
        with otherwise:
            plain_results, plain_end = emit(twice), builder.block
    results = []
    for a, b in zip(fused_results, plain_results, strict=True):
        result = builder.phi(a.type)
        result.add_incoming(a, fused_end)
        result.add_incoming(b, plain_end)
        results.append(result)
    return context.make_tuple(builder, signature.return_type, results)
