"""Leases: the part of a run's limits that a cluster worker may use until its next report.

The head keeps the run's `Budget` and `RateLimiter`s. Those of a worker follow the lease. With every
report a worker gives back unused limits and reports its waiting calls. It gets a new lease at once.
So a limit holds for the cluster as it does in one process. A worker asks a few times per second,
not for each call. The run's one `LoanManager` lends for the calls to send.
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
    """The budget part of a worker's report.

    It holds the budget that waiting calls need, and the maximum and expected cost of the oldest
    one. It also holds the unused budget and the loan to ask for. Amounts are in USD. `is_idle`: no
    call is in flight and no entry is unsent.
    """

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
    """All that a worker may use until its next report.

    `usd` and `calls` may be reserved from the budget. `lent` is the total loan to send calls with
    (None: unchanged), `unpriced` if at an unknown price. `models` holds the grant for each model.
    `journal_entries` are the journal's entries at the addresses that the worker asked for.
    """

    usd: float = 0.0
    calls: int = 0
    lent: Amount | None = None
    unpriced: bool = False
    models: dict[str, Grant] = field(default_factory=dict)
    journal_entries: dict[str, JournalEntry | None] = field(default_factory=dict)


def report_of(
    allowance: SharedLimits, loan: Loan, *, quiet: bool
) -> tuple[dict[str, ModelDemand], BudgetDemand]:
    """Return a worker's demands by model and its budget demand since the last report.

    Unused slots, tokens and budget are given back. `quiet`: no entry waits to be sent to the head.
    """
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
    """Apply a lease on a worker."""
    allowance.budget.raise_limits(lease.usd, lease.calls)
    for model, grant in lease.models.items():
        allowance.limiters[model].apply_grant(grant)
    if lease.lent is not None:
        loan.apply_loan(lease.lent, unpriced=lease.unpriced)


def divide_fairly(total: float, demands: Sequence[float]) -> list[float]:
    """Divide a total among demands.

    No demand gets more than it wants while another lacks. What remains is divided equally.
    """
    shares, left = [0.0] * len(demands), max(0.0, total)
    # Serve the smallest demands first: what they leave goes to the larger ones.
    for rank, who in enumerate(sorted(range(len(demands)), key=demands.__getitem__)):
        shares[who] = min(demands[who], left / (len(demands) - rank))
        left -= shares[who]
    return [share + left / len(demands) for share in shares]


@dataclass(slots=True)
class WorkerAccount:
    """A worker as the head knows it: its last report, and the budget and slots that it holds."""

    demands: dict[str, ModelDemand] = field(default_factory=dict)
    # Slots by model.
    places: dict[str, int] = field(default_factory=dict)
    budget_demand: BudgetDemand = field(default_factory=BudgetDemand)
    usd: float = 0.0
    calls: int = 0


class Leases:
    """The division of a run's limits among its workers.

    `spacing` is the minimum time between calls of the study file (s). `answered` returns whether a
    model has answered at least once. `stop` stops the run.
    """

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
        # Reports in a row of workers with a call that does not fit while no money can be released.
        self._in_vain = 0

    def add_worker(self, worker: int) -> None:
        """Add a worker without any lease."""
        self._tenants[worker] = WorkerAccount()

    def remove_worker(self, worker: int) -> None:
        """Remove a lost worker and free its slots and budget."""
        tenant = self._tenants.pop(worker)
        for model, places in tenant.places.items():
            self._give_back(model, places)
        self._budget.lend_to_worker(-tenant.usd, -tenant.calls)

    def record_cost(self, worker: int, cost: float | None) -> None:
        """Count a journaled call of a worker as spent, in place of the budget lent for it."""
        tenant = self._tenants[worker]
        # Never below 0: a call may cost more than the rest of the worker's budget.
        usd, calls = min(tenant.usd, cost or 0.0), min(1, tenant.calls)
        tenant.usd -= usd
        tenant.calls -= calls
        self._in_vain = 0
        self._budget.lend_to_worker(-usd, -calls)
        self._budget.count(cost or 0.0)

    def settle_broken(self, worker: int, max_usd: float) -> None:
        """Count the reservation of a worker's broken-off reply as spent."""
        tenant = self._tenants[worker]
        usd = min(tenant.usd, max_usd)
        tenant.usd -= usd
        self._budget.lend_to_worker(-usd, 0)
        self._budget.record_spending(max_usd)

    def issue_lease(
        self, worker: int, uses: Mapping[str, ModelDemand], money: BudgetDemand
    ) -> Lease:
        """Process a worker's report and return its next lease."""
        tenant = self._tenants[worker]
        for model, use in uses.items():
            self._apply_demand(model, use)
            # Slots of calls that ended are free again, before new ones are granted.
            self._give_back(model, tenant.places.get(model, 0) - use.in_flight)
            tenant.places[model] = use.in_flight
        tenant.demands = dict(uses)
        usd, calls = min(tenant.usd, money.usd_left), min(tenant.calls, money.calls_left)
        # An idle worker holds nothing. Setting it to 0 keeps rounding errors from adding up.
        if money.is_idle:
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
        """Return the seconds for which models are held, for those that are."""
        found = {model: limiter.hold_seconds for model, limiter in self._allowance.limiters.items()}
        return {model: seconds for model, seconds in found.items() if seconds}

    def _apply_demand(self, model: str, use: ModelDemand) -> None:
        """Apply what a worker learned about a model to the head's limiter of the model."""
        limiter = self._get_limiter(model)
        for bucket, left in (
            (limiter.requests, use.starts_left),
            (limiter.tokens, use.tokens_left),
        ):
            if bucket is not None and left < UNLIMITED:
                # A negative amount returns unused tokens to the bucket.
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
        """Return a worker's grant for a model: a fair share of slots, call starts and tokens."""
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
        # A worker with no call in flight gets one slot even if its fair share rounds to 0.
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
        """Return a worker's share of the budget (USD, calls).

        It is a fair share, or the need of the worker's oldest call if that is more and available.
        """
        budget, tenants = self._budget, list(self._tenants.values())
        me = list(self._tenants).index(worker)
        money = tenants[me].budget_demand
        usd = calls = 0.0
        free_usd, free_calls = budget.remaining()
        # Calls of the head compete with those of workers.
        waits = budget.waiting_count
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
        """Return the budget (USD, calls) for a call that does not fit.

        It is 0, so that cheaper calls of others may run. If all other workers are idle, the call
        runs alone, provided that its expected cost fits. Otherwise the budget is used up.
        """
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
        # Two reports of each worker without a call that fits: no cheaper call is on its way.
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
    """Return a fair share of a free amount, or all that the first call needs if that is more."""
    share = divide_fairly(free, wants)[own_demand]
    return first if share < first <= free else share


def _bucket_share(
    bucket: TokenBucket | None, now: float, wants: Sequence[float], me: int, first: float
) -> float:
    """Take a worker's fair share out of a token bucket and return it."""
    if bucket is None:
        return UNLIMITED
    bucket.seconds_until(0.0, now)
    got = _fair_share(max(0.0, bucket.available), wants, me, min(first, bucket.capacity))
    bucket.take_tokens(got)
    return got
