"""Leases: what of the limits of a run a worker of a cluster may use until it reports again.

The head keeps the run's own `Budget` and `RateLimiter`s, and those of a worker go by what it gives
out. With every report a worker gives back what it does not use and says what waits; it gets a new
lease at once. So a limit holds for the cluster as it does in one process, and a worker asks a few
times a second and not for each call. What may be sent is lent by the run's one `LoanManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from folkmoot.engine.calls.retries import SharedLimits
from folkmoot.engine.journal.journal import JournalEntry
from folkmoot.engine.limits.budget import Amount, CallPrice
from folkmoot.engine.limits.lender import Loan, Wish
from folkmoot.engine.limits.rate_limiter import (
    UNLIMITED,
    Grant,
    ModelDemand,
    RateLimiter,
    TokenBucket,
)
from folkmoot.errors import BudgetReachedError


@dataclass(slots=True)
class BudgetDemand:
    """What a worker reports of the budget: what waits (all; the first call, and what it will
    likely cost), what it gives back, and what it wishes to send. `is_idle`: nothing is in flight or
    unsent there."""

    waiting_usd: float = 0.0
    waiting_calls: int = 0
    oldest_call_max_usd: float = 0.0
    oldest_call_expected_usd: float = 0.0
    usd_left: float = 0.0
    calls_left: int = 0
    is_idle: bool = True
    loan: Wish = field(default=Wish())


@dataclass(slots=True)
class Lease:
    """All that a worker may use until it reports again: what it may reserve of the budget, what it
    has been `lent` to send (None: as before; `unpriced`: at an unknown price), what of the models'
    limits. `journal_entries`: what the journal
    holds at the addresses that it asked about."""

    usd: float = 0.0
    calls: int = 0
    lent: Amount | None = None
    unpriced: bool = False
    models: dict[str, Grant] = field(default_factory=dict)
    journal_entries: dict[str, JournalEntry | None] = field(default_factory=dict)


def report_of(
    allowance: SharedLimits, loan: Loan, *, quiet: bool
) -> tuple[dict[str, ModelDemand], BudgetDemand]:
    """What happened on a worker since the last report, by model; what waits; gives back what is
    free. `quiet`: nothing that was answered is on its way to the head."""
    uses = {
        model: limiter.take_report()
        for model, limiter in allowance.limiters.items()
        if limiter.is_lent
    }
    budget = allowance.budget
    money = BudgetDemand(loan=loan.current_wish())
    money.is_idle = quiet and budget.is_idle and not any(use.in_flight for use in uses.values())
    if waiting := budget.prices_waiting:
        money.waiting_calls = len(waiting)
        money.waiting_usd = sum(price.max_usd for price in waiting)
        money.oldest_call_max_usd, money.oldest_call_expected_usd = waiting[0]
    money.usd_left, money.calls_left = budget.take_free()
    return uses, money


def apply_lease(lease: Lease, allowance: SharedLimits, loan: Loan) -> None:
    """Go on with a lease, on a worker."""
    allowance.budget.raise_limits(lease.usd, lease.calls)
    for model, grant in lease.models.items():
        allowance.limiters[model].apply_grant(grant)
    if lease.lent is not None:
        loan.apply_loan(lease.lent, unpriced=lease.unpriced)


def divide_fairly(total: float, demands: Sequence[float]) -> list[float]:
    """A total among those who want of it: nobody gets more than wanted while another lacks; what
    nobody wants goes to all alike."""
    shares, left = [0.0] * len(demands), max(0.0, total)
    for rank, who in enumerate(sorted(range(len(demands)), key=demands.__getitem__)):
        shares[who] = min(demands[who], left / (len(demands) - rank))
        left -= shares[who]
    return [share + left / len(demands) for share in shares]


@dataclass(slots=True)
class WorkerAccount:
    """One worker, as the lender knows it: its last report, and what of it is out."""

    demands: dict[str, ModelDemand] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)  # by model
    budget_demand: BudgetDemand = field(default_factory=BudgetDemand)
    usd: float = 0.0
    calls: int = 0


class Leases:
    """Divides what the run's allowance has among workers, by number. `spacing` as in the study
    file; `answered` tells whether a model ever answered; `stop` ends the run."""

    def __init__(
        self,
        allowance: SharedLimits,
        spacing: float,
        answered: Callable[[str], bool],
        stop: Callable[[BudgetReachedError], None],
    ) -> None:
        self._allowance = allowance
        self._budget = allowance.budget
        self._spacing = spacing
        self._answered = answered
        self._stop = stop
        self._tenants: dict[int, WorkerAccount] = {}
        self._in_vain = 0  # reports of workers who wait for money that nobody can give back

    def add_worker(self, worker: int) -> None:
        """A worker came."""
        self._tenants[worker] = WorkerAccount()

    def remove_worker(self, worker: int) -> None:
        """A worker is gone; what it had is free."""
        tenant = self._tenants.pop(worker)
        for model, places in tenant.places.items():
            self._give_back(model, places)
        self._budget.lend_to_worker(-tenant.usd, -tenant.calls)

    def record_cost(self, worker: int, cost: float | None) -> None:
        """A call of a worker is in the journal: what was lent for it is spent."""
        tenant = self._tenants[worker]
        usd, calls = min(tenant.usd, cost or 0.0), min(1, tenant.calls)
        tenant.usd -= usd
        tenant.calls -= calls
        self._in_vain = 0
        self._budget.lend_to_worker(-usd, -calls)
        self._budget.count(cost or 0.0)

    def settle_broken(self, worker: int, max_usd: float) -> None:
        """A reply to a worker's call broke off: all that was reserved for it is spent."""
        tenant = self._tenants[worker]
        usd = min(tenant.usd, max_usd)
        tenant.usd -= usd
        self._budget.lend_to_worker(-usd, 0)
        self._budget.record_spending(max_usd)

    def issue_lease(
        self, worker: int, uses: Mapping[str, ModelDemand], money: BudgetDemand
    ) -> Lease:
        """Take in a report; what the worker may use next."""
        tenant = self._tenants[worker]
        for model, use in uses.items():
            self._apply_demand(model, use)
            self._give_back(model, tenant.places.get(model, 0) - use.in_flight)
            tenant.places[model] = use.in_flight
        tenant.demands = dict(uses)
        usd, calls = min(tenant.usd, money.usd_left), min(tenant.calls, money.calls_left)
        if money.is_idle:  # no rounding errors add up
            usd, calls = tenant.usd, tenant.calls
        tenant.usd -= usd
        tenant.calls -= calls
        self._budget.lend_to_worker(-usd, -calls)
        tenant.budget_demand = money
        lease = Lease(models={model: self._grant_for(model, worker) for model in uses})
        if self._budget.active:
            lease.usd, lease.calls = self._budget_share(worker)
        return lease

    def hold_seconds_by_model(self) -> dict[str, float]:
        """Seconds for which models are on hold."""
        found = {model: limiter.hold_seconds for model, limiter in self._allowance.limiters.items()}
        return {model: seconds for model, seconds in found.items() if seconds}

    def _apply_demand(self, model: str, use: ModelDemand) -> None:
        limiter = self._get_limiter(model)
        for bucket, left in (
            (limiter.requests, use.starts_left),
            (limiter.tokens, use.tokens_left),
        ):
            if bucket is not None and left < UNLIMITED:
                bucket.take_tokens(-left)
        for age, retry_after in use.rate_limit_events:
            limiter.record_rate_limit(limiter.current_time() - age, retry_after)
        for _ in range(use.successes):
            limiter.record_success()
        if use.rate_hints:
            limiter.update_from_headers(use.rate_hints)
        if use.hold_seconds:
            limiter.hold_calls(use.hold_seconds)

    def _grant_for(self, model: str, worker: int) -> Grant:
        limiter, everybody = self._get_limiter(model), self._allowance.total_concurrency
        now, others = limiter.current_time(), list(self._tenants.values())
        me = list(self._tenants).index(worker)
        using = [worker_account.demands.get(model, ModelDemand()) for worker_account in others]
        use = using[me]
        allowed = int(limiter.allowed + 1e-9)
        free = min(allowed - limiter.in_flight, everybody.most - everybody.in_flight)
        share = int(
            divide_fairly(
                allowed, [model_demand.in_flight + model_demand.waiting for model_demand in using]
            )[me]
        )
        wanted_now = 1 if use.waiting and not use.in_flight else 0
        places = min(free, max(share - use.in_flight, wanted_now))
        self._take_slots(model, max(places, 0))
        self._tenants[worker].places[model] += max(places, 0)
        starts = _bucket_share(
            limiter.requests, now, [model_demand.waiting for model_demand in using], me, 1.0
        )
        tokens = _bucket_share(
            limiter.tokens,
            now,
            [model_demand.waiting_tokens for model_demand in using],
            me,
            use.first,
        )
        return Grant(
            places,
            starts,
            tokens,
            UNLIMITED if limiter.tokens is None else limiter.tokens.capacity,
            limiter.hold_seconds,
            max(
                1,
                sum(bool(model_demand.waiting or model_demand.in_flight) for model_demand in using),
            ),
            self._answered(model),
        )

    def _budget_share(self, worker: int) -> tuple[float, int]:
        """A slice of the budget: a fair one, or what the first call needs if that is there."""
        budget, tenants = self._budget, list(self._tenants.values())
        me = list(self._tenants).index(worker)
        money = tenants[me].budget_demand
        usd = calls = 0.0
        free_usd, free_calls = budget.remaining()
        waits = budget.waiting_count  # the head's own calls
        if budget.calls is not None:
            calls_wanted = [
                *(worker_account.budget_demand.waiting_calls for worker_account in tenants),
                waits,
            ]
            calls = float(
                int(_fair_share(free_calls, calls_wanted, me, min(1, money.waiting_calls)))
            )
        if budget.usd is not None:
            wants = [
                *(worker_account.budget_demand.waiting_usd for worker_account in tenants),
                waits * money.oldest_call_max_usd,
            ]
            usd = _fair_share(free_usd, wants, me, money.oldest_call_max_usd)
        if money.waiting_calls and (
            (budget.calls is not None and calls < 1)
            or (budget.usd is not None and usd < money.oldest_call_max_usd)
        ):
            usd, calls = self._grant_unaffordable_call(worker, money)
        elif money.waiting_calls:
            self._in_vain = 0
        tenants[me].usd += usd
        tenants[me].calls += int(calls)
        budget.lend_to_worker(usd, int(calls))
        return usd, int(calls)

    def _grant_unaffordable_call(self, worker: int, money: BudgetDemand) -> tuple[float, float]:
        """What a call gets that does not fit: nothing, so that others may. Where all others are
        over, it goes alone if its likely cost fits, or the budget is used up."""
        others = (
            worker_account for number, worker_account in self._tenants.items() if number != worker
        )
        if not money.is_idle or any(
            worker_account.usd or worker_account.calls or not worker_account.budget_demand.is_idle
            for worker_account in others
        ):
            return 0.0, 0.0
        free_usd, free_calls = self._budget.remaining()
        if (
            free_calls >= 1 or self._budget.calls is None
        ) and money.oldest_call_expected_usd <= free_usd:
            return money.oldest_call_max_usd, 1.0 if self._budget.calls is not None else 0.0
        self._in_vain += 1
        if self._in_vain > 2 * len(self._tenants) and not self._budget.waiting_count:
            self._stop(
                self._budget.exhausted_error(
                    CallPrice(money.oldest_call_max_usd, money.oldest_call_expected_usd)
                )
            )
        return 0.0, 0.0

    def _get_limiter(self, model: str) -> RateLimiter:
        return self._allowance.get_limiter(model, self._spacing, local=False)

    def _take_slots(self, model: str, places: int) -> None:
        for limiter in (self._get_limiter(model), self._allowance.total_concurrency):
            limiter.in_flight += places

    def _give_back(self, model: str, places: int) -> None:
        for limiter in (self._get_limiter(model), self._allowance.total_concurrency):
            limiter.release(places)


def _fair_share(free: float, wants: Sequence[float], own_demand: int, first: float) -> float:
    """A fair share of what is free; all that the first call needs, if no less will do."""
    share = divide_fairly(free, wants)[own_demand]
    return first if share < first <= free else share


def _bucket_share(
    bucket: TokenBucket | None, now: float, wants: Sequence[float], me: int, first: float
) -> float:
    """A fair share of what is in a bucket by now, taken out of it."""
    if bucket is None:
        return UNLIMITED
    bucket.seconds_until(0.0, now)
    got = _fair_share(max(0.0, bucket.available), wants, me, min(first, bucket.capacity))
    bucket.take_tokens(got)
    return got
