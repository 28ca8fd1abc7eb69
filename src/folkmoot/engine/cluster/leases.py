"""Leases. A lease is the part of the run's limits that a worker may use until its next report.

With this module, the main process divides the run's limits (budget and rates) among the workers.
"""

# With every report a worker gives back what it did not use, and names its waiting calls. The head
# answers with a new lease. So a limit applies to all workers together, and a worker asks a few
# times per second, not for each call. `limits/lender.py` records on disk which calls the workers
# may send.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from folkmoot.engine.calls.retries import SharedLimits
from folkmoot.engine.journal.journal import JournalEntry
from folkmoot.engine.limits.budget import Amount, CallPrice
from folkmoot.engine.limits.lender import Loan, LoanWish
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
    """The part of the budget that the waiting calls of a worker need."""

    # The maximum cost (USD) of the waiting calls, and their number.
    waiting_usd: float = 0.0
    waiting_calls: int = 0
    # The maximum and the expected cost (USD) of the call that has waited longest.
    oldest_call_max_usd: float = 0.0
    oldest_call_expected_usd: float = 0.0
    # The unused rest of the budget that the worker may reserve.
    usd_left: float = 0.0
    calls_left: int = 0
    # True if no call is in flight and the main process has all entries.
    is_idle: bool = True
    # The calls that the main process is asked to record on disk before the worker sends them.
    loan: LoanWish = field(default=LoanWish())


@dataclass(slots=True)
class Lease:
    """The limits that a worker may use until its next report."""

    # The part of the budget that the worker may reserve: a cost (USD) and a number of calls.
    usd: float = 0.0
    calls: int = 0
    # The total of calls that are recorded on disk for this worker, which it may thus send. None if
    # the total is unchanged.
    lent: Amount | None = None
    # True if this total includes calls of unknown price.
    unpriced: bool = False
    # The rate limits of each model that the worker may use.
    models: dict[str, Grant] = field(default_factory=dict)
    # The journal's entries at the addresses that the worker asked for.
    journal_entries: dict[str, JournalEntry | None] = field(default_factory=dict)


def build_report(
    shared_limits: SharedLimits, loan: Loan, *, is_quiet: bool
) -> tuple[dict[str, ModelDemand], BudgetDemand]:
    """Return what a worker needs, for its report: calls to each model, and budget.

    - `loan`: the calls that the worker may still send.
    - `is_quiet`: True if the main process has received all journal entries of the worker.
    """
    # The report gives back all unused calls, tokens and budget, so the worker's own limits shrink.
    demands = {
        model: limiter.take_report()
        for model, limiter in shared_limits.limiters.items()
        if limiter.is_lent
    }
    budget = shared_limits.budget
    budget_demand = BudgetDemand(loan=loan.current_wish())
    budget_demand.is_idle = (
        is_quiet and budget.is_idle and not any(demand.in_flight for demand in demands.values())
    )
    if waiting := budget.prices_waiting:
        budget_demand.waiting_calls = len(waiting)
        budget_demand.waiting_usd = sum(price.max_usd for price in waiting)
        budget_demand.oldest_call_max_usd, budget_demand.oldest_call_expected_usd = waiting[0]
    budget_demand.usd_left, budget_demand.calls_left = budget.take_free()
    return demands, budget_demand


def apply_lease(lease: Lease, shared_limits: SharedLimits, loan: Loan) -> None:
    """Set the limits of this worker to those in `lease`.

    - `shared_limits`: the limits to set.
    - `loan`: receives the number of calls that the worker may send.
    """
    shared_limits.budget.raise_limits(lease.usd, lease.calls)
    for model, grant in lease.models.items():
        shared_limits.limiters[model].apply_grant(grant)
    if lease.lent is not None:
        loan.apply_loan(lease.lent, unpriced=lease.unpriced)


def divide_fairly(total: float, demands: Sequence[float]) -> list[float]:
    """Divide `total` fairly among demands, and return the share that each demand gets."""
    # A share is larger than its demand only if all demands are met. The rest is divided equally.
    shares, remaining = [0.0] * len(demands), max(0.0, total)
    # Serve the smallest demands first: what they leave goes to the larger ones.
    for rank, index in enumerate(sorted(range(len(demands)), key=demands.__getitem__)):
        shares[index] = min(demands[index], remaining / (len(demands) - rank))
        remaining -= shares[index]
    return [share + remaining / len(demands) for share in shares]


@dataclass(slots=True)
class WorkerAccount:
    """The account of one worker: its last report, and the limits that the worker holds."""

    # The last report, by model.
    demands: dict[str, ModelDemand] = field(default_factory=dict)
    # The number of calls that the worker may have in flight, by model.
    slots: dict[str, int] = field(default_factory=dict)
    # The last report on the budget.
    budget_demand: BudgetDemand = field(default_factory=BudgetDemand)
    # The part of the budget that the worker holds: a cost (USD) and a number of calls.
    usd: float = 0.0
    calls: int = 0


class Leases:
    """The leases of all workers, which together never exceed the limits of the run.

    - `spacing`: the minimum time between two calls, in seconds.
    - `has_answered`: returns whether a model has answered at least once.
    - `stop`: stops the run with an error.
    """

    def __init__(
        self,
        shared_limits: SharedLimits,
        spacing: float,
        has_answered: Callable[[str], bool],
        stop: Callable[[BudgetReachedError], None],
    ) -> None:
        self._shared_limits = shared_limits
        self._budget = shared_limits.budget
        self._spacing = spacing
        self._answered = has_answered
        self._stop = stop
        self._accounts: dict[int, WorkerAccount] = {}
        # Reports in a row of workers with a call that does not fit while no money can be released.
        self._unaffordable_count = 0

    def add_worker(self, worker: int) -> None:
        """Add a worker. The worker holds no limits yet, so it may make no calls."""
        self._accounts[worker] = WorkerAccount()

    def remove_worker(self, worker: int) -> None:
        """Remove a lost worker, so that the remaining workers can use its part of the limits."""
        account = self._accounts.pop(worker)
        for model, slots in account.slots.items():
            self._give_back(model, slots)
        self._budget.lend_to_worker(-account.usd, -account.calls)

    def record_cost(self, worker: int, cost: float | None) -> None:
        """Add the cost of a worker's call to the spending of the run.

        - `cost`: the cost in USD, or None if unknown.
        """
        # If the cost is unknown, only the number of calls is counted.
        account = self._accounts[worker]
        # Never below 0: a call may cost more than the rest of the worker's budget.
        self._unaffordable_count = 0
        self._take_back(account, min(account.usd, cost or 0.0), min(1, account.calls))
        self._budget.count(cost or 0.0)

    def settle_broken(self, worker: int, max_usd: float) -> None:
        """Add the maximum cost of a reply that a worker lost to the spending of the run.

        - `max_usd`: the maximum cost of the reply in USD. This maximum counts as spent.
        """
        account = self._accounts[worker]
        self._take_back(account, min(account.usd, max_usd), min(1, account.calls))
        self._budget.count_broken(max_usd)

    def _take_back(self, account: WorkerAccount, usd: float, calls: int) -> None:
        account.usd -= usd
        account.calls -= calls
        self._budget.lend_to_worker(-usd, -calls)

    def issue_lease(
        self, worker: int, demands: Mapping[str, ModelDemand], budget_demand: BudgetDemand
    ) -> Lease:
        """Return the limits that a worker may use until its next report.

        - `demands`, `budget_demand`: the needs that the worker has reported.
        """
        account = self._accounts[worker]
        for model, demand in demands.items():
            self._apply_demand(model, demand)
            # Slots of calls that ended are free again, before new ones are granted.
            self._give_back(model, account.slots.get(model, 0) - demand.in_flight)
            account.slots[model] = demand.in_flight
        account.demands = dict(demands)
        usd, calls = (
            min(account.usd, budget_demand.usd_left),
            min(account.calls, budget_demand.calls_left),
        )
        # An idle worker holds nothing. Setting it to 0 keeps rounding errors from adding up.
        if budget_demand.is_idle:
            usd, calls = account.usd, account.calls
        self._take_back(account, usd, calls)
        account.budget_demand = budget_demand
        lease = Lease(models={model: self._grant_for(model, worker) for model in demands})
        if self._budget.active:
            lease.usd, lease.calls = self._budget_share(worker)
        return lease

    def hold_seconds_by_model(self) -> dict[str, float]:
        """Return for how many seconds calls to a model must still wait, by model."""
        # Models without a wait are left out.
        hold_seconds = {
            model: limiter.hold_seconds for model, limiter in self._shared_limits.limiters.items()
        }
        return {model: seconds for model, seconds in hold_seconds.items() if seconds}

    def _apply_demand(self, model: str, demand: ModelDemand) -> None:
        limiter = self._get_limiter(model)
        for bucket, tokens_left in (
            (limiter.requests, demand.starts_left),
            (limiter.tokens, demand.tokens_left),
        ):
            if bucket is not None and tokens_left < UNLIMITED:
                # A negative amount returns unused tokens to the bucket.
                bucket.take_tokens(-tokens_left)
        for age, retry_after in demand.rate_limit_events:
            limiter.record_rate_limit(limiter.current_time() - age, retry_after)
        for _ in range(demand.successes):
            limiter.record_success()
        if demand.rate_hints:
            limiter.update_from_headers(demand.rate_hints)
        if demand.hold_seconds:
            limiter.hold_calls(demand.hold_seconds)

    def _grant_for(self, model: str, worker: int) -> Grant:
        limiter, all_models = self._get_limiter(model), self._shared_limits.total_concurrency
        now, accounts = limiter.current_time(), list(self._accounts.values())
        index = list(self._accounts).index(worker)
        demands = [account.demands.get(model, ModelDemand()) for account in accounts]
        own_demand = demands[index]
        allowed = int(limiter.allowed + 1e-9)
        free_slots = min(
            allowed - limiter.in_flight, all_models.max_concurrency - all_models.in_flight
        )
        share = int(
            divide_fairly(allowed, [demand.in_flight + demand.waiting for demand in demands])[index]
        )
        # All models share one limit. Without a fair share, one model could keep slots for which no
        # call waits, and another model would never get any.
        share = min(share, self._share_of_all_models(model, worker))
        # A worker with no call in flight gets one slot even if its fair share rounds to 0.
        min_slots = 1 if own_demand.waiting and not own_demand.in_flight else 0
        slots = min(free_slots, max(share - own_demand.in_flight, min_slots))
        self._take_slots(model, max(slots, 0))
        self._accounts[worker].slots[model] += max(slots, 0)
        starts = _bucket_share(
            limiter.requests, now, [demand.waiting for demand in demands], index, 1.0
        )
        tokens = _bucket_share(
            limiter.tokens,
            now,
            [demand.waiting_tokens for demand in demands],
            index,
            own_demand.first,
        )
        return Grant(
            slots,
            starts,
            tokens,
            UNLIMITED if limiter.tokens is None else limiter.tokens.capacity,
            limiter.hold_seconds,
            max(
                1,
                sum(bool(demand.waiting or demand.in_flight) for demand in demands),
            ),
            self._answered(model),
        )

    def _share_of_all_models(self, model: str, worker: int) -> int:
        # The fair share of the calls in flight to all models.
        wanted = {
            (number, name): float(demand.in_flight + demand.waiting)
            for number, account in self._accounts.items()
            for name, demand in account.demands.items()
        }
        total = self._shared_limits.total_concurrency.max_concurrency
        shares = divide_fairly(total, list(wanted.values()))
        return int(dict(zip(wanted, shares, strict=True))[worker, model] + 1e-9)

    def _budget_share(self, worker: int) -> tuple[float, int]:
        # Returns a cost (USD) and a number of calls. If possible, the share pays for the call of
        # the worker that has waited longest.
        budget, accounts = self._budget, list(self._accounts.values())
        index = list(self._accounts).index(worker)
        own_demand = accounts[index].budget_demand
        usd = calls = 0.0
        free_usd, free_calls = budget.remaining()
        # Calls of the head compete with those of workers.
        waiting_count = budget.waiting_count
        if budget.calls is not None:
            calls_wanted = [
                *(account.budget_demand.waiting_calls for account in accounts),
                waiting_count,
            ]
            calls = float(
                int(_fair_share(free_calls, calls_wanted, index, min(1, own_demand.waiting_calls)))
            )
        if budget.usd is not None:
            usd_wanted = [
                *(account.budget_demand.waiting_usd for account in accounts),
                waiting_count * own_demand.oldest_call_max_usd,
            ]
            usd = _fair_share(free_usd, usd_wanted, index, own_demand.oldest_call_max_usd)
        if own_demand.waiting_calls and (
            (budget.calls is not None and calls < 1)
            or (budget.usd is not None and usd < own_demand.oldest_call_max_usd)
        ):
            usd, calls = self._grant_unaffordable_call(worker, own_demand)
        elif own_demand.waiting_calls:
            self._unaffordable_count = 0
        accounts[index].usd += usd
        accounts[index].calls += int(calls)
        budget.lend_to_worker(usd, int(calls))
        return usd, int(calls)

    def _grant_unaffordable_call(
        self, worker: int, budget_demand: BudgetDemand
    ) -> tuple[float, float]:
        # Returns a cost (USD) and a number of calls. Both are 0 while other calls are in flight,
        # because they may leave money. After that, the budget must cover the expected cost, or the
        # run stops.
        other_accounts = (account for number, account in self._accounts.items() if number != worker)
        others_are_busy = not self._budget.is_idle or any(
            account.usd or account.calls or not account.budget_demand.is_idle
            for account in other_accounts
        )
        if others_are_busy or not budget_demand.is_idle:
            return 0.0, 0.0
        free_usd, free_calls = self._budget.remaining()
        if (
            free_calls >= 1 or self._budget.calls is None
        ) and budget_demand.oldest_call_expected_usd <= free_usd:
            return budget_demand.oldest_call_max_usd, 1.0 if self._budget.calls is not None else 0.0
        self._unaffordable_count += 1
        # After two reports of each worker without an affordable call, no cheaper call is coming.
        if self._unaffordable_count > 2 * len(self._accounts) and not self._budget.waiting_count:
            self._stop(
                self._budget.exhausted_error(
                    CallPrice(
                        budget_demand.oldest_call_max_usd, budget_demand.oldest_call_expected_usd
                    )
                )
            )
        return 0.0, 0.0

    def _get_limiter(self, model: str) -> RateLimiter:
        return self._shared_limits.get_limiter(model, self._spacing, local=False)

    def _take_slots(self, model: str, slots: int) -> None:
        for limiter in (self._get_limiter(model), self._shared_limits.total_concurrency):
            limiter.in_flight += slots

    def _give_back(self, model: str, slots: int) -> None:
        for limiter in (self._get_limiter(model), self._shared_limits.total_concurrency):
            limiter.release(slots)


def _fair_share(free: float, demands: Sequence[float], index: int, first: float) -> float:
    # `first` is what the oldest call of this worker needs. The share is at least this much if this
    # much is free.
    share = divide_fairly(free, demands)[index]
    return first if share < first <= free else share


def _bucket_share(
    bucket: TokenBucket | None, now: float, demands: Sequence[float], index: int, first: float
) -> float:
    if bucket is None:
        return UNLIMITED
    bucket.seconds_until(0.0, now)
    taken = _fair_share(max(0.0, bucket.available), demands, index, min(first, bucket.capacity))
    bucket.take_tokens(taken)
    return taken
