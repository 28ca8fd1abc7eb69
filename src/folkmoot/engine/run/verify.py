"""Was anything in a run changed since it ended?

`folkmoot verify` answers in full, reports and `load` by hashes alone.

In full means: the journal is replayed in a scratch folder, where no model can be asked, and every
table and file that comes out is compared with what lies in the run folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from folkmoot.engine.calls.model_routing import Providers
from folkmoot.engine.journal.earlier_replies import ReplyChange
from folkmoot.engine.journal.integrity import BINDING_FORMAT, digest_of_run
from folkmoot.engine.journal.journal import Entry, JournalReader, Replay
from folkmoot.engine.run.event_loop import run_to_end
from folkmoot.engine.run.execution import SOME_TIME, Execution, RunOptions, execute
from folkmoot.engine.run.preflight import asked_in
from folkmoot.engine.seats.withdrawal import withdrawals
from folkmoot.engine.session.folder_access import describe_other_version
from folkmoot.engine.session.plan import first_difference
from folkmoot.engine.study.study import Study, study_of_run
from folkmoot.engine.study.study_file import StudyFile, validate
from folkmoot.errors import FolkmootError, NotJournaled, StorageError
from folkmoot.files import storage_errors
from folkmoot.hints import shortened, some_of
from folkmoot.measures.inference.estimates import plural
from folkmoot.models.request import Request
from folkmoot.models.scripted import Scripted
from folkmoot.randomness import digest
from folkmoot.storage import amendments
from folkmoot.storage.json_files import read_json_object, write_json
from folkmoot.storage.manifest import SEAL, seal_manifest, sha256
from folkmoot.storage.run_folder import (
    JOURNAL,
    LOG,
    LOG_LINES,
    MANIFEST,
    PERSONAS,
    PLAN,
    TABLES,
    RunFolder,
)
from folkmoot.storage.tables import PARQUET_ONLY

# What no second run has in common with the first.
OF_THE_DAY = frozenset(
    {
        *(
            "finished_at",
            "wall_seconds",
            "processes",
            "retries",
            "lost_tries",
            "software",
            "hashes",
        ),
        *("journal_digest", "record_digest", "seal", "study_file"),
    }
)


DIGESTS = ("content digest", "record digest")


@dataclass
class Verification:
    """The result. `differences`: what is not as the run left it, or as its journal says;
    `not_compared`: what could not be compared, and why; `amended`: what people changed since,
    beside the run and not in it; `notes`: how far the digests bind; `digest_matches`: whether one
    of the two digests is the published one, None where none was given; the rest counts what was
    compared."""

    differences: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)
    amended: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    entries: int = 0
    tables: int = 0
    files: int = 0
    content_digest: str = ""
    record_digest: str = ""
    digest_matches: bool | None = None

    @property
    def consistent(self) -> bool:
        """Whether everything was compared, and nothing contradicts anything else in the folder."""
        return not self.differences and not self.not_compared

    @property
    def verified(self) -> bool:
        """Whether the run is consistent and has the digest that was published elsewhere. Without
        such a digest, a consistent change of the whole folder cannot be detected."""
        return self.consistent and self.digest_matches is True


def changed_since(run: RunFolder) -> list[str]:
    """What hashes tell: files and a journal that are not what the run left."""
    path, form = run.path / JOURNAL, 0
    try:
        with JournalReader(path) as journal:
            form = journal.format
            damage = journal.damage()
            now = ("", "") if damage else digests_of(run, journal)
    except StorageError as error:
        why = str(error) if path.exists() else f"{JOURNAL} is gone"
        return [*_changed_files(run, form), f"{why}: requests and replies cannot be looked up."]
    found = [f"{JOURNAL} was changed after the run: {one}." for one in damage]
    kept = {**run.manifest, **_last_withdrawal(run)}
    was = kept.get("journal_digest"), kept.get("record_digest")
    if not damage and now[0] != was[0] and not run.finished:
        return []  # a later process was killed: the manifest is of an earlier state
    if not damage:
        found += [
            f"{JOURNAL} or {PLAN} was changed after the run: its {name} is {new}, was {old}."
            for name, new, old in zip(DIGESTS, now, was, strict=True)
            if old and old != new
        ]
    return [*_changed_files(run, form), *amendments.changed(run.path), *found]


def digests_of(run: RunFolder, journal: JournalReader) -> tuple[str, str]:
    """Return the content digest and the record digest of a run with an undamaged journal."""
    return journal.content_digest(), digest_of_run(journal.record_digest(), run.plan)


def verify_run(run: RunFolder, study: Study | None = None, *, published: str = "") -> Verification:
    """Replay a run and compare. Needs no key and no network, and writes nothing in the run folder.

    `study`: the type, where it is neither installed nor a file beside the run. `published`: a
    digest of the run that was published elsewhere.
    """
    found = Verification(changed_since(run))
    with suppress(StorageError):  # it was named among the differences
        found.amended = amendments.described(run.path)
    try:
        with JournalReader(run.path / JOURNAL) as journal:
            if journal.damage():  # it was named among the differences
                found.not_compared.append(
                    "The journal is damaged, so the run is not rebuilt from it. `folkmoot verify "
                    "--repair` sets the damaged answers aside, to be asked again."
                )
                return found
            found.entries = len(journal)
            found.content_digest, found.record_digest = digests_of(run, journal)
            found.differences += _forged_entries(journal)
            _compare_with_published(found, journal.format, published.strip().lower())
    except StorageError:
        found.not_compared.append("Without its journal the run cannot be rebuilt.")
        return found
    if not run.finished:
        found.not_compared.append(
            "The run is not finished, so it cannot be rebuilt; finish it with --resume."
        )
        return found
    with suppress(StorageError):  # it was named among the differences
        found.not_compared += _gone(run)
    if found.not_compared:
        return found
    with TemporaryDirectory(prefix="folkmoot-verify-") as folder:
        scratch = Path(folder)
        try:
            unasked = _replay(run, study, scratch)
        except NotJournaled as error:
            found.differences.append(f"{JOURNAL}: {error}. The run cannot be rebuilt.")
        except NotRebuiltError as error:
            found.not_compared.append(str(error))
        else:
            found.differences += unasked
            _compare(run, RunFolder(scratch), found)
    return found


class NotRebuiltError(Exception):
    """Why a run cannot be rebuilt here, though nothing need be wrong with it."""


def _changed_files(run: RunFolder, journal_format: int) -> list[str]:
    found = []
    written = read_json_object(run.path / MANIFEST) if run.has(MANIFEST) else {}
    # Runs of earlier formats have no seal.
    is_sealed = SEAL in written or (written and journal_format >= BINDING_FORMAT)
    if is_sealed and written.get(SEAL) != seal_manifest(written)[SEAL]:
        found.append(f"{MANIFEST} was changed after the run: its seal does not fit.")
    recorded = run.manifest.get("hashes"), _last_withdrawal(run).get("hashes")
    hashes = {k: v for part in recorded if isinstance(part, Mapping) for k, v in part.items()}
    for name, was in hashes.items():
        path = run.path / name
        if not path.is_file():
            found.append(f"{name} is gone.")
        elif sha256(path) != was:
            found.append(f"{name} was changed after the run: its hash is not the recorded one.")
    return found


def _last_withdrawal(run: RunFolder) -> Mapping[str, Any]:
    """What the last person who withdrew left: digest and hashes; empty where nobody did."""
    try:
        return withdrawals(run.path)[-1].data
    except (StorageError, IndexError):  # what is wrong with the amendments is told by themselves
        return {}


def _gone(run: RunFolder) -> list[str]:
    """What nobody can recompute any more, because people withdrew."""
    return [
        f"{a.data['seat']} withdrew: {plural(a.data['answers'], 'answer')} of theirs "
        f"({some_of(a.data['addresses'])}) and all that followed from them cannot be recomputed."
        for a in withdrawals(run.path)
    ]


def _compare_with_published(found: Verification, form: int, published: str) -> None:
    if form < BINDING_FORMAT:
        told = found.not_compared if published else found.notes
        told.append(
            f"The digest does not bind: the journal is of format {form}, whose digest is a sum of "
            "hashes and can be forged."
        )
    elif published:
        found.digest_matches = published in (found.content_digest, found.record_digest)
        if not found.digest_matches:
            found.differences.append(
                f"The run is not the published one: neither of its digests is {published}."
            )


def _forged_entries(journal: JournalReader) -> list[str]:
    """Describe entries with another request than the one that the fingerprint was made from."""
    asked = [e.address for e in journal.entries() if not _fits(e)]
    if not asked or journal.format == 1:
        return []
    return [f"{JOURNAL}: another request than was sent stands at {some_of(asked)}."]


def _fits(entry: Entry) -> bool:
    """Whether the request of an entry is the one that its fingerprint was made of."""
    asked = entry.request
    if entry.kind == "compute":  # its arguments are not kept
        return True
    if entry.kind == "embed":
        return digest(asked["model"], *asked["texts"]) == entry.fingerprint
    try:
        return Request.from_json(asked).fingerprint() == entry.fingerprint
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def _replay(run: RunFolder, study: Study | None, scratch: Path) -> list[str]:
    """Run once more from the journal, in a scratch folder; what it holds beyond the run."""
    try:
        change = ReplyChange.from_plan(run.plan)
        found, providers = study_as_it_was_run(run, study, change)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotRebuiltError(f"{MANIFEST} or {PLAN} is damaged: {error!r}") from error
    plan = {"sealed": {}, "changes": run.plan.get("changes", [])}
    write_json(scratch / PLAN, {"started_at": run.plan.get("started_at", ""), **plan})
    if run.has(PERSONAS):
        with storage_errors(scratch):
            copyfile(run.path / PERSONAS, scratch / PERSONAS)
    replay = Replay(run.path / JOURNAL)
    options = RunOptions(preflight=asked_in(replay), change=change)
    try:
        run_to_end(
            lambda stopper: execute(
                Execution(found, options, providers, scratch, stopper, replay=replay)
            )
        )
    except NotJournaled:
        raise
    except Exception as error:  # whatever the study's code says to what it is given
        why = str(error) or type(error).__name__
        raise NotRebuiltError(f"The run cannot be rebuilt{_other_code(run)}: {why}") from error
    with JournalReader(run.path / JOURNAL) as journal:
        more = [a for a in journal.addresses() if a not in replay.asked]
    if not more or plan["changes"]:  # --accept-changes may leave behind what nobody asks for
        return []
    return [f"{JOURNAL} holds what the run does not ask for: {some_of(more)}."]


def study_as_it_was_run(
    run: RunFolder, study: Study | None = None, change: ReplyChange | None = None
) -> tuple[StudyFile, Providers]:
    """The study file and the models of a run, from what it wrote down. Raises NotRebuiltError."""
    sealed = run.plan.get("sealed", {}).get("design", {}).get("data")
    if not sealed:
        raise NotRebuiltError(f"{PLAN} holds no design, so the run cannot be rebuilt.")
    manifest = run.manifest
    if "override" not in manifest:
        raise NotRebuiltError(f"{MANIFEST} is of an earlier version{_other_code(run)}.")
    source = run.path / manifest["study_file"]
    try:
        kind = study or study_of_run(run)
        config = validate(kind, {**run.config, **sealed["settings"]})
        found = StudyFile(source, kind, config, {}, manifest["override"])
        prompts = found.prompts().hashes()
        # Nobody is asked; but who was says which model embeds, and what is marked SYNTHETIC.
        nobody = Scripted(lambda _request, _address: "") if manifest["scripted"] else None
        seats = kind.seat_models(config)
        providers = Providers(config, manifest["override"], None, nobody, seats).change_for(change)
        providers.keep_embedding(sealed.get("embedding_model"))
    except FolkmootError as error:
        raise NotRebuiltError(f"The run cannot be rebuilt{_other_code(run)}: {error}") from error
    was = sealed.get("prompts", {})
    if other := sorted(n for n in {*was, *prompts} if was.get(n) != prompts.get(n)):
        raise NotRebuiltError(
            f"The prompts {some_of(other)} are not those of the run, so it cannot be rebuilt "
            f"here{_other_code(run)}."
        )
    return found, providers


def _other_code(run: RunFolder) -> str:
    """In words, that the run was made by other code than this; empty if it was not."""
    other = describe_other_version(run.path)
    return f" ({other})" if other else ""


def _compare(run: RunFolder, rebuilt: RunFolder, found: Verification) -> None:
    """Every file of the rebuilt run beside that of the run."""
    other = _other_code(run)
    otherwise: list[str] = []

    def tell(name: str, differences: Iterable[str]) -> None:
        # What other code made otherwise need not be forged: hashes have told what was.
        told = otherwise if other else found.differences
        told += [f"{name}: {text}" for text in differences]

    tell(PLAN, _plans(run.plan, rebuilt.plan))
    now = {k: v for k, v in rebuilt.manifest.items() if k in run.manifest or not other}
    tell(MANIFEST, _manifests(run.manifest, now))
    for name in dict.fromkeys([*run.tables(), *rebuilt.tables()]):
        found.tables += 1
        tell(f"{TABLES}/{name}.parquet", _tables(run, rebuilt, name))
        if name not in PARQUET_ONLY:
            tell(f"{TABLES}/{name}.csv", _texts(run, rebuilt, f"{TABLES}/{name}.csv"))
    done = {PLAN, MANIFEST, LOG, LOG_LINES}
    for path in sorted(rebuilt.path.rglob("*")):
        name = path.relative_to(rebuilt.path).as_posix()
        if path.is_file() and name not in done and path.parent.name != TABLES:
            found.files += 1
            tell(name, _texts(run, rebuilt, name))
    if otherwise:
        found.not_compared += [f"This code gives otherwise{other}:", *otherwise]


def _plans(there: Mapping[str, Any], rebuilt: Mapping[str, Any]) -> list[str]:
    was, now = there.get("sealed", {}), rebuilt.get("sealed", {})
    names = [*was, *(n for n in now if n not in was)]
    if there.get("changes"):  # a part may have gone with what was changed
        names = [n for n in names if n in now]
    found = []
    for name in names:
        if name not in now or name not in was:
            where = "the plan" if name in was else "the rebuilt plan"
            found.append(f"the sealed part “{name}” is in {where} alone.")
        elif was[name] != now[name]:
            what = first_difference(was[name], now[name])
            found.append(f"the sealed part “{name}” is not that of the run: {what}.")
    return found


def _manifests(there: Mapping[str, object], rebuilt: Mapping[str, object]) -> list[str]:
    names = (n for n in rebuilt if n not in OF_THE_DAY or n not in there)
    return [
        f"{name} is {_short(there.get(name))}, rebuilt {_short(rebuilt[name])}."
        for name in names
        if there.get(name) != rebuilt[name]
    ]


def _tables(run: RunFolder, rebuilt: RunFolder, name: str) -> list[str]:
    """How a table differs from the rebuilt one: columns, rows, cells."""
    if not rebuilt.has_table(name):
        return ["the run does not write such a table."]
    if not run.has_table(name):
        return ["is not there; the rebuilt run writes it."]
    new = rebuilt.table(name)
    try:
        old = run.table(name)
    except StorageError as error:
        return [str(error)]
    found = []
    if gone := [c for c in new.columns if c not in old.columns]:
        found.append(f"lacks the columns {', '.join(gone)}.")
    if more := [c for c in old.columns if c not in new.columns]:
        found.append(f"has the columns {', '.join(more)}, which the run does not write.")
    if old.height != new.height:
        return [*found, f"has {plural(old.height, 'row')}, rebuilt {new.height}."]
    for column in new.columns:
        if column in old.columns:
            found += _cells(old[column], new[column])
    return found


def _cells(old: pl.Series, new: pl.Series) -> list[str]:
    if old.dtype != new.dtype:
        return [f"column {old.name} is {old.dtype}, rebuilt {new.dtype}."]
    rows = [int(i) for i in (~old.eq_missing(new)).arg_true()]
    if not rows:
        return []
    first = f"{_short(old[rows[0]])}, rebuilt {_short(new[rows[0]])}"
    listed = some_of([str(i + 1) for i in rows])
    return [f"column {old.name} differs in {plural(len(rows), 'row')} ({listed}): {first}."]


def _texts(run: RunFolder, rebuilt: RunFolder, name: str) -> list[str]:
    """The first line in which a file differs from the rebuilt one."""
    if not (run.path / name).is_file():
        return ["is not there; the rebuilt run writes it."]
    with (run.path / name).open("rb") as old, (rebuilt.path / name).open("rb") as new:
        for number, pair in enumerate(zip_longest(old, new), 1):  # a file may be large
            if pair[0] != pair[1]:
                was, now = (p and p.decode("utf-8", "replace").rstrip("\n") for p in pair)
                if not (was and now and _but_for_the_time(was, now)):
                    return [f"line {number} is {_short(was)}, rebuilt {_short(now)}."]
    return []


def _but_for_the_time(was: str, now: str) -> bool:
    """Whether two lines differ only in the time of day."""
    if SOME_TIME not in now:
        return False
    pattern = re.escape(now).replace(re.escape(SOME_TIME), r"[\d:T+-]{25}")
    return re.fullmatch(pattern, was) is not None


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shortened(text)
