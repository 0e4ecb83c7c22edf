"""Rules over what a folder holds together: whole sets, one format, and no file of ids that nothing reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenreel.corpus.members import gaps, of_sets
from tokenreel.corpus.opening import kinds_of
from tokenreel.formats.recognising import beside, form_of, looks_like_data
from tokenreel.verify.wording import counted

if TYPE_CHECKING:
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import Target

INDEXED = ("mds", "litdata", "levanter")
"""Beginnings of names of formats that say themselves which shards there are."""


def check_sets(target: Target, findings: Findings) -> None:
    """Add a finding for every set of shards that lacks members by the names of the others.

    ``NAME-00003-of-00012`` says how many there are: an error, or a warning where a manifest says that these are all. A
    number that is missing between others is a warning.
    """
    names = [shard.name for shard in target.files if not shard.format.startswith(INDEXED)]
    attested = target.built or target.manifest is not None
    for one in of_sets(names):
        said = []
        if one.missing:
            said.append(f"{counted(one.said - one.there, 'member')} of {one.said} missing: {one.numbers}")
        if one.surplus:
            said.append(f"{counted(len(one.surplus), 'member')} too many: {', '.join(one.surplus[:3])}")
        add = findings.warning if attested else findings.error
        add("DOC014", f"the set {one.name}: {'; '.join(said)}", shard=one.first, expected=one.said, found=one.there)
    for one in () if attested else gaps(names):
        findings.warning(
            "DOC015",
            f"the numbers of {one.name} have a gap: {one.numbers}",
            shard=one.first,
            expected=one.said,
            found=one.there,
        )


def check_one_format(target: Target, findings: Findings) -> None:
    """Add a finding where the folder holds shards of several formats, which open as no corpus."""
    if target.manifest is not None or target.built or not target.whole:
        return
    others = beside(target.store, target.entries, target.files)
    kinds = kinds_of((*target.files, *others))
    if len(kinds) > 1:
        findings.error("FLT006", expected="one format", found=", ".join(f"{form} in {name}" for form, name in kinds))


def check_left_out(target: Target, findings: Findings) -> bool:
    """Warn of every file that looks as if it held ids and that nothing reads; False: nothing was left out."""
    taken = {file for shard in target.files for file in shard.files}
    taken |= {file for shard in beside(target.store, target.entries, target.files) for file in shard.files}
    known = {form_of(shard.files[0]) for shard in target.files}
    looked = False
    for path, size in target.sizes.items():
        if path not in taken and looks_like_data(path, known):
            looked = True
            findings.warning("FLT009", "it is read by nothing", path=path, found=counted(size, "byte"))
    return looked
