"""Leases: what of the limits of a run a worker of a cluster may use until it reports again.

The head keeps the run's own `Budget` and `Limiter`s, and those of a worker go by what it gives out.
With every report a worker gives back what it does not use and says what waits; it gets a new lease
at once. So a limit holds for the cluster as it does in one process, and a worker asks a few times a
second and not for each call. What may be sent is lent by the run's one `Lender`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from folkmoot.engine.calls.retries import Allowance
from folkmoot.engine.journal.journal import Entry
from folkmoot.engine.limits.budget import Amount, Price
from folkmoot.engine.limits.lender import Loan, Wish
from folkmoot.engine.limits.rate_limiter import ENDLESS, Bucket, Grant, Limiter, Use
from folkmoot.errors import BudgetReached


@dataclass(slots=True)
class Money:
    """What a worker reports of the budget: what waits (all; the first call, and what it will
    likely cost), what it gives back, and what it wishes to send. `quiet`: nothing is in flight or
    unsent there."""

    wanted_usd: float = 0.0
    wanted_calls: int = 0
    first_usd: float = 0.0
    likely_usd: float = 0.0
    usd_left: float = 0.0
    calls_left: int = 0
    quiet: bool = True
    loan: Wish = field(default=Wish())


@dataclass(slots=True)
class Lease:
    """All that a worker may use until it reports again: what it may reserve of the budget, what it
    has been `lent` to send (None: as before; `unpriced`: at an unknown price), what of the models'
    limits. `found`: what the journal
    holds at the addresses that it asked about."""

    usd: float = 0.0
    calls: int = 0
    lent: Amount | None = None
    unpriced: bool = False
    models: dict[str, Grant] = field(default_factory=dict)
    found: dict[str, Entry | None] = field(default_factory=dict)


def report_of(allowance: Allowance, loan: Loan, *, quiet: bool) -> tuple[dict[str, Use], Money]:
    """What happened on a worker since the last report, by model; what waits; gives back what is
    free. `quiet`: nothing that was answered is on its way to the head."""
    uses = {m: limiter.report() for m, limiter in allowance.limiters.items() if limiter.is_lent}
    budget = allowance.budget
    money = Money(loan=loan.wish())
    money.quiet = quiet and budget.idle and not any(use.in_flight for use in uses.values())
    if waiting := budget.prices_waiting:
        money.wanted_calls = len(waiting)
        money.wanted_usd = sum(price.dearest for price in waiting)
        money.first_usd, money.likely_usd = waiting[0]
    money.usd_left, money.calls_left = budget.take_free()
    return uses, money


def take(lease: Lease, allowance: Allowance, loan: Loan) -> None:
    """Go on with a lease, on a worker."""
    allowance.budget.grow(lease.usd, lease.calls)
    for model, grant in lease.models.items():
        allowance.limiters[model].take(grant)
    if lease.lent is not None:
        loan.take(lease.lent, unpriced=lease.unpriced)


def divided(total: float, wants: Sequence[float]) -> list[float]:
    """A total among those who want of it: nobody gets more than wanted while another lacks; what
    nobody wants goes to all alike."""
    shares, left = [0.0] * len(wants), max(0.0, total)
    for rank, who in enumerate(sorted(range(len(wants)), key=wants.__getitem__)):
        shares[who] = min(wants[who], left / (len(wants) - rank))
        left -= shares[who]
    return [share + left / len(wants) for share in shares]


@dataclass(slots=True)
class Tenant:
    """One worker, as the lender knows it: its last report, and what of it is out."""

    uses: dict[str, Use] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)  # by model
    money: Money = field(default_factory=Money)
    usd: float = 0.0
    calls: int = 0


class Leases:
    """Divides what the run's allowance has among workers, by number. `spacing` as in the study
    file; `answered` tells whether a model ever answered; `stop` ends the run."""

    def __init__(
        self,
        allowance: Allowance,
        spacing: float,
        answered: Callable[[str], bool],
        stop: Callable[[BudgetReached], None],
    ) -> None:
        self._allowance = allowance
        self._budget = allowance.budget
        self._spacing = spacing
        self._answered = answered
        self._stop = stop
        self._tenants: dict[int, Tenant] = {}
        self._in_vain = 0  # reports of workers who wait for money that nobody can give back

    def add(self, worker: int) -> None:
        """A worker came."""
        self._tenants[worker] = Tenant()

    def lose(self, worker: int) -> None:
        """A worker is gone; what it had is free."""
        tenant = self._tenants.pop(worker)
        for model, places in tenant.places.items():
            self._give_back(model, places)
        self._budget.lend(-tenant.usd, -tenant.calls)

    def settle(self, worker: int, cost: float | None) -> None:
        """A call of a worker is in the journal: what was lent for it is spent."""
        tenant = self._tenants[worker]
        usd, calls = min(tenant.usd, cost or 0.0), min(1, tenant.calls)
        tenant.usd -= usd
        tenant.calls -= calls
        self._in_vain = 0
        self._budget.lend(-usd, -calls)
        self._budget.count(cost or 0.0)

    def settle_broken(self, worker: int, max_usd: float) -> None:
        """A reply to a worker's call broke off: all that was reserved for it is spent."""
        tenant = self._tenants[worker]
        usd = min(tenant.usd, max_usd)
        tenant.usd -= usd
        self._budget.lend(-usd, 0)
        self._budget.spend(max_usd)

    def lease(self, worker: int, uses: Mapping[str, Use], money: Money) -> Lease:
        """Take in a report; what the worker may use next."""
        tenant = self._tenants[worker]
        for model, use in uses.items():
            self._learn(model, use)
            self._give_back(model, tenant.places.get(model, 0) - use.in_flight)
            tenant.places[model] = use.in_flight
        tenant.uses = dict(uses)
        usd, calls = min(tenant.usd, money.usd_left), min(tenant.calls, money.calls_left)
        if money.quiet:  # no rounding errors add up
            usd, calls = tenant.usd, tenant.calls
        tenant.usd -= usd
        tenant.calls -= calls
        self._budget.lend(-usd, -calls)
        tenant.money = money
        lease = Lease(models={model: self._grant(model, worker) for model in uses})
        if self._budget.active:
            lease.usd, lease.calls = self._slice(worker)
        return lease

    def holds(self) -> dict[str, float]:
        """Seconds for which models are on hold."""
        found = {m: limiter.held for m, limiter in self._allowance.limiters.items()}
        return {model: seconds for model, seconds in found.items() if seconds}

    def _learn(self, model: str, use: Use) -> None:
        limiter = self._limiter(model)
        for bucket, left in (
            (limiter.requests, use.starts_left),
            (limiter.tokens, use.tokens_left),
        ):
            if bucket is not None and left < ENDLESS:
                bucket.take(-left)
        for age, retry_after in use.limited:
            limiter.rate_limited(limiter.now() - age, retry_after)
        for _ in range(use.successes):
            limiter.succeeded()
        if use.hints:
            limiter.learn(use.hints)
        if use.held:
            limiter.hold(use.held)

    def _grant(self, model: str, worker: int) -> Grant:
        limiter, everybody = self._limiter(model), self._allowance.places
        now, others = limiter.now(), list(self._tenants.values())
        me = list(self._tenants).index(worker)
        using = [t.uses.get(model, Use()) for t in others]
        use = using[me]
        allowed = int(limiter.allowed + 1e-9)
        free = min(allowed - limiter.in_flight, everybody.most - everybody.in_flight)
        share = int(divided(allowed, [u.in_flight + u.waiting for u in using])[me])
        wanted_now = 1 if use.waiting and not use.in_flight else 0
        places = min(free, max(share - use.in_flight, wanted_now))
        self._take(model, max(places, 0))
        self._tenants[worker].places[model] += max(places, 0)
        starts = _slice_of(limiter.requests, now, [u.waiting for u in using], me, 1.0)
        tokens = _slice_of(limiter.tokens, now, [u.tokens for u in using], me, use.first)
        return Grant(
            places,
            starts,
            tokens,
            ENDLESS if limiter.tokens is None else limiter.tokens.capacity,
            limiter.held,
            max(1, sum(bool(u.waiting or u.in_flight) for u in using)),
            self._answered(model),
        )

    def _slice(self, worker: int) -> tuple[float, int]:
        """A slice of the budget: a fair one, or what the first call needs if that is there."""
        budget, tenants = self._budget, list(self._tenants.values())
        me = list(self._tenants).index(worker)
        money = tenants[me].money
        usd = calls = 0.0
        free_usd, free_calls = budget.free()
        waits = budget.waiting  # the head's own calls
        if budget.calls is not None:
            calls_wanted = [*(t.money.wanted_calls for t in tenants), waits]
            calls = float(int(_fair(free_calls, calls_wanted, me, min(1, money.wanted_calls))))
        if budget.usd is not None:
            wants = [*(t.money.wanted_usd for t in tenants), waits * money.first_usd]
            usd = _fair(free_usd, wants, me, money.first_usd)
        if money.wanted_calls and (
            (budget.calls is not None and calls < 1)
            or (budget.usd is not None and usd < money.first_usd)
        ):
            usd, calls = self._last(worker, money)
        elif money.wanted_calls:
            self._in_vain = 0
        tenants[me].usd += usd
        tenants[me].calls += int(calls)
        budget.lend(usd, int(calls))
        return usd, int(calls)

    def _last(self, worker: int, money: Money) -> tuple[float, float]:
        """What a call gets that does not fit: nothing, so that others may. Where all others are
        over, it goes alone if its likely cost fits, or the budget is used up."""
        others = (t for number, t in self._tenants.items() if number != worker)
        if not money.quiet or any(t.usd or t.calls or not t.money.quiet for t in others):
            return 0.0, 0.0
        free_usd, free_calls = self._budget.free()
        if (free_calls >= 1 or self._budget.calls is None) and money.likely_usd <= free_usd:
            return money.first_usd, 1.0 if self._budget.calls is not None else 0.0
        self._in_vain += 1
        if self._in_vain > 2 * len(self._tenants) and not self._budget.waiting:
            self._stop(self._budget.reached(Price(money.first_usd, money.likely_usd)))
        return 0.0, 0.0

    def _limiter(self, model: str) -> Limiter:
        return self._allowance.limiter(model, self._spacing, local=False)

    def _take(self, model: str, places: int) -> None:
        for limiter in (self._limiter(model), self._allowance.places):
            limiter.in_flight += places

    def _give_back(self, model: str, places: int) -> None:
        for limiter in (self._limiter(model), self._allowance.places):
            limiter.leave(places)


def _fair(free: float, wants: Sequence[float], me: int, first: float) -> float:
    """A fair share of what is free; all that the first call needs, if no less will do."""
    share = divided(free, wants)[me]
    return first if share < first <= free else share


def _slice_of(
    bucket: Bucket | None, now: float, wants: Sequence[float], me: int, first: float
) -> float:
    """A fair share of what is in a bucket by now, taken out of it."""
    if bucket is None:
        return ENDLESS
    bucket.wait(0.0, now)
    got = _fair(max(0.0, bucket.level), wants, me, min(first, bucket.capacity))
    bucket.take(got)
    return got
