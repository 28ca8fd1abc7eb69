"""Loans: every call is in the journal before it is sent, and the journal has the open loans."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.engine.calls.gateway import Gateway
from folkmoot.engine.journal.journal import Journal, JournalEntry
from folkmoot.engine.journal.journal_copy import copy_journal, replace_journal
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.limits.budget import Amount, Budget
from folkmoot.engine.limits.lender import OWN_PROCESS, LoanManager, LoanWish
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import BudgetReachedError, RunPausedError, StorageError, TransientError
from folkmoot.models.catalog import ModelSpec, resolve_model
from folkmoot.models.prices import ModelPrice, find_price
from folkmoot.models.request import Completion, Message, ModelRequest, Usage
from folkmoot.models.scripted import ScriptedProvider

SPEC = ModelSpec("openai/gpt-4o", "openai", "gpt-4o", price_provider="openai", price_model="gpt-4o")
USAGE = Usage(3, 20, 0)


def find_rate() -> ModelPrice:
    model_price = find_price(SPEC)
    assert model_price is not None
    return model_price


def build_request(number: int) -> ModelRequest:
    return ModelRequest(SPEC.name, (Message("user", f"Hello, {number}"),), max_tokens=40)


def read_money(path: Path) -> tuple[Amount, Amount]:
    """Return the paid and the possibly paid sum as another process reads them now.

    Both are read in one transaction, because the writer continues."""
    sums = []
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)) as db:
        db.execute("BEGIN")
        table_names = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        for table, of in (
            ("entries", "count(*), sum(cost_usd)"),
            ("loans", "sum(calls), sum(max_usd)"),
        ):
            row = (
                db.execute(f"SELECT {of} FROM {table}").fetchone()
                if table in table_names
                else (0, 0.0)
            )
            sums.append(Amount(row[0] or 0, row[1] or 0.0))
    return sums[0], sums[1]


LIMITS = st.one_of(
    st.just({}),
    st.floats(0.0005, 0.05).map(lambda usd: {"budget_usd": usd}),
    st.integers(1, 60).map(lambda calls: {"budget_calls": calls}),
)
CALLS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=60)


@settings(max_examples=25, deadline=None)
@given(CALLS, LIMITS, st.integers(1, 20))
def test_every_sent_call_is_on_disk_before(
    planned_calls: list[tuple[int, int]], limits: dict[str, float], concurrency: int
) -> None:
    """A kill at any moment leaves no billed call out of the journal and no budget exceeded."""
    failures = [failed for _, failed in planned_calls]
    sent_addresses: set[str] = set()
    failed_checks: list[tuple[int, Amount, Amount]] = []

    async def run(path: Path) -> None:
        async def answer(_request: ModelRequest, address: str) -> Completion:
            sent_addresses.add(address)
            paid, possible = read_money(path)
            total = paid.add_amount(possible)
            most_usd, most_calls = limits.get("budget_usd"), limits.get("budget_calls")
            if (
                not total.covers_amount(
                    Amount(
                        len(sent_addresses),
                        len(sent_addresses) * (find_rate().cost(USAGE) or 0.0) - 1e-9,
                    )
                )
                or (most_usd is not None and total.usd > most_usd + 1e-9)
                or (most_calls is not None and total.calls > most_calls)
            ):
                failed_checks.append((len(sent_addresses), paid, possible))
            for _ in range(planned_calls[int(address)][0]):
                await asyncio.sleep(0)
            if failures[int(address)]:
                failures[int(address)] -= 1
                raise TransientError("come again")
            return Completion("x", USAGE)

        config = StudyConfig(
            concurrency=concurrency, api_retry_base_seconds=0.0, max_api_retries=3, **limits
        )
        with Journal(path) as journal:
            gateway = Gateway(journal, lambda name: (ScriptedProvider(answer), SPEC), config)
            calls = (
                gateway.complete_request(str(n), build_request(n))
                for n in range(len(planned_calls))
            )
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            await gateway.wait_for_calls_in_flight()
        errors = [error for error in outcomes if isinstance(error, BaseException)]
        assert all(isinstance(error, BudgetReachedError) for error in errors)
        assert not failed_checks
        assert read_money(path)[1] == Amount()  # no loan is outstanding at the end

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder) / "journal.sqlite"))


async def test_cancelled_call_stays_possibly_paid(tmp_path: Path) -> None:
    call_started = asyncio.Event()

    async def answer(_request: ModelRequest, address: str) -> Completion:
        if address == "1":
            call_started.set()
            await asyncio.Event().wait()
        return Completion("x", USAGE)

    path = tmp_path / "journal.sqlite"
    with Journal(path) as journal:
        gateway = Gateway(journal, lambda name: (ScriptedProvider(answer), SPEC), StudyConfig())
        await gateway.complete_request("0", build_request(0))
        hung = asyncio.ensure_future(gateway.complete_request("1", build_request(1)))
        await call_started.wait()
        hung.cancel()
        await asyncio.gather(hung, return_exceptions=True)
        await gateway.wait_for_calls_in_flight()
    paid, possible = read_money(path)
    assert paid.calls == possible.calls == 1 and possible.usd > paid.usd


async def test_runs_that_share_a_journal_add_up(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    outs = []

    def answer(_request: ModelRequest, _address: str) -> Completion:
        outs.append(read_money(path)[1].calls)
        return Completion("x", USAGE)

    with Journal(path) as journal:
        for number in range(3):
            gateway = Gateway(journal, lambda name: (ScriptedProvider(answer), SPEC), StudyConfig())
            for i in range(100):
                await gateway.complete_request(f"{number}/{i}", build_request(i))
            await gateway.wait_for_calls_in_flight()
            await journal.flush()
            assert read_money(path)[1] == Amount()
    assert min(outs) > 0


async def test_failed_call_is_no_longer_outstanding(tmp_path: Path) -> None:
    def answer(_request: ModelRequest, _address: str) -> Completion:
        raise TransientError("come again")

    path, config = tmp_path / "journal.sqlite", StudyConfig(max_api_retries=0)
    with Journal(path) as journal:
        gateway = Gateway(journal, lambda name: (ScriptedProvider(answer), SPEC), config)
        with pytest.raises(RunPausedError):
            await gateway.complete_request("0", build_request(0))
        assert read_money(path)[1].calls > 0
        await gateway.wait_for_calls_in_flight()
    assert read_money(path) == (Amount(), Amount())


async def test_local_model_needs_no_loan(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    local = resolve_model("synthetic")

    def answer(_request: ModelRequest, _address: str) -> Completion:
        assert read_money(path)[1] == Amount()
        return Completion("x", USAGE)

    with Journal(path) as journal:
        gateway = Gateway(journal, lambda name: (ScriptedProvider(answer), local), StudyConfig())
        for number in range(20):
            await gateway.complete_request(str(number), build_request(number))
        await gateway.wait_for_calls_in_flight()


async def test_calls_of_unknown_price_are_lent_at_an_unknown_price(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    max_usd_by_address: dict[str, float | None] = {}

    def answer(_request: ModelRequest, address: str) -> Completion:
        with JournalReader(path) as journal:
            (loan,) = journal.read_outstanding_loans()
        max_usd_by_address[address] = loan.max_usd
        return Completion("x", USAGE)

    specs = {"openai/gpt-4o": SPEC, "own/m": ModelSpec("own/m", "own", "m")}
    with Journal(path) as journal:
        gateway = Gateway(
            journal, lambda name: (ScriptedProvider(answer), specs[name]), StudyConfig()
        )
        await gateway.complete_request("priced", build_request(0))
        unknown = ModelRequest("own/m", (Message("user", "Hello"),))
        # The earlier advance loan does not cover it.
        await gateway.complete_request("unpriced", unknown)
        await gateway.wait_for_calls_in_flight()
    assert max_usd_by_address["priced"] and max_usd_by_address["unpriced"] is None


async def write_journal_with_lost_worker(path: Path) -> Amount:
    """Write the journal of a killed run and return the outstanding sum of its lost worker 0.

    Worker 0 was lost with three of five calls outstanding. Calls of worker 1 were outstanding when
    the run was killed."""
    with Journal(path) as journal:
        budget = Budget(usd=1.0)
        lender = LoanManager(journal, budget)
        wish = LoanWish(waiting=Amount(5, 0.05), ahead=0, price=0.01)
        assert await lender.lend_to_worker(0, wish) == Amount(5, 0.05)
        await lender.lend_to_worker(1, wish)
        for number in range(2):
            journal.append(JournalEntry(f"a/{number}", "ask", b"", {}, "x", cost_usd=0.004), 0.01)
            lender.record_settlement(0.01, 0)
        out = lender.record_lost_worker(0)
        await journal.flush()
        assert budget.spent_usd == pytest.approx(out.usd)
    return out


async def test_lost_worker_has_its_own_row(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    out = await write_journal_with_lost_worker(path)
    assert out.calls == 3 and out.usd == pytest.approx(0.03)
    with JournalReader(path) as journal:
        assert sorted((loan.who, loan.calls) for loan in journal.read_outstanding_loans()) == [
            ("process", 5),
            ("worker", 3),
        ]
        assert journal.possibly_paid().usd == pytest.approx(0.08)
        assert not journal.find_damage()


async def test_replies_found_later_are_no_longer_possibly_paid(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    await write_journal_with_lost_worker(path)
    found_entries = [JournalEntry(f"b/{n}", "ask", b"", {}, "x", cost_usd=0.004) for n in range(4)]
    with Journal(path) as journal:
        for entry in found_entries:
            journal.append(entry)
        journal.note_found(found_entries)
    with JournalReader(path) as journal:
        possible = journal.possibly_paid()
        assert possible.calls == 4 and possible.usd == pytest.approx(0.08 - 4 * 0.004)
        assert not journal.find_damage()


async def test_copied_journal_keeps_possibly_paid_sums(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    await write_journal_with_lost_worker(path)
    with JournalReader(path) as journal:
        before = journal.read_outstanding_loans()
        copied_journal = copy_journal(journal, lambda entry: entry)
    replace_journal(path, copied_journal)
    with JournalReader(path) as journal:
        assert journal.read_outstanding_loans() == before and not journal.find_damage()


@pytest.mark.parametrize(
    "change", ["DELETE FROM loans", "UPDATE loans SET max_usd = 0", "UPDATE loans SET calls = 1"]
)
async def test_changed_loan_is_reported_as_damage(change: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    await write_journal_with_lost_worker(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(change)
    with JournalReader(path) as journal:
        assert "loans" in str(journal.find_damage())
    with pytest.raises(StorageError, match="loans"):
        Journal(path)


async def test_advance_loans_are_bounded_by_the_remaining_budget(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        for calls, ahead in ((None, 1000), (1001, 50), (100, 8), (5, 4)):
            lender = LoanManager(journal, Budget(calls=calls))
            lent = await lender.lend_to_worker(0, LoanWish(waiting=Amount(1), ahead=1000))
            assert lent.calls == 1 + ahead
        # The money is tied to the calls: a few calls cannot cost as much as many.
        lender = LoanManager(journal, Budget(calls=5))
        wish = LoanWish(waiting=Amount(1, 0.001), ahead=1000, price=0.001)
        assert (await lender.lend_to_worker(0, wish)).usd == pytest.approx(5 * 0.001)
        lender = LoanManager(journal, Budget(usd=1.0))
        lent = await lender.lend_to_worker(
            OWN_PROCESS, LoanWish(waiting=Amount(1, 0.001), ahead=1000, price=0.001)
        )
        assert lent.usd == pytest.approx(0.001 + 0.05 * 0.999)


@pytest.mark.parametrize(("limits", "ahead"), [((None, 3001), 150), ((None, 100), 8), ((), 1000)])
async def test_concurrent_runs_divide_the_advance_loans(
    limits: tuple[Any, ...], ahead: int, tmp_path: Path
) -> None:
    """A kill ends all cells of a grid, so the bound is that of one run."""
    budget = Budget(*limits)
    budget.concurrent_runs = 4
    wish = LoanWish(waiting=Amount(1), ahead=1000)
    lent_calls = []
    for number in range(4):
        with Journal(tmp_path / f"journal{number}.sqlite") as journal:
            lent = await LoanManager(journal, budget).lend_to_worker(0, wish)
            lent_calls.append(lent.calls)
    assert min(lent_calls) > 1
    assert sum(lent_calls) <= 4 + ahead
