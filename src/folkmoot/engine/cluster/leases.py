"""Leases: what of the limits of a run a worker of a cluster may use until it reports again.

The head keeps the run's own `Budget` and `Limiter`s. With every report a worker gives back what it
does not use and says what waits; it gets a new lease at once. So a limit holds for the cluster as
it does in one process, and a worker asks a few times a second and not for each call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from folkmoot.engine.attempts import UNBOUNDED, Allowance
from folkmoot.engine.budget import Budget, Price
from folkmoot.engine.journal import Entry
from folkmoot.engine.limits import Bucket, Limiter
from folkmoot.errors import BudgetReached

ENDLESS = math.inf


@dataclass(slots=True)
class Use:
    """What a worker reports of one model: what waits there, what it gives back, what it learned.

    `first` are the tokens of the call that waits longest. `limited`: for each 429 how long ago its
    call began (s), and the wait that it asked for. `held`: seconds that the model is on hold.
    """

    in_flight: int = 0
    waiting: int = 0
    tokens: float = 0.0
    first: float = 0.0
    starts_left: float = 0.0
    tokens_left: float = 0.0
    successes: int = 0
    hints: Mapping[str, float] | None = None
    limited: list[tuple[float, float | None]] = field(default_factory=list)
    held: float = 0.0
    retries: int = 0
    lost: int = 0


@dataclass(slots=True)
class Grant:
    """What a worker may use of one model: places to add (or to give up, below zero), calls to start
    and tokens to start them with.

    `most` is the largest amount of tokens that a call may have to wait for; `held` seconds in which
    nothing starts; `sharing` the workers among whom a minimum spacing is divided; `answered`
    whether the model ever answered.
    """

    places: int = 0
    starts: float = 0.0
    tokens: float = 0.0
    most: float = ENDLESS
    held: float = 0.0
    sharing: int = 1
    answered: bool = False


@dataclass(slots=True)
class Money:
    """What a worker reports of the budget: what waits (all; the first call, and what it will
    likely cost), and what it gives back. `quiet`: nothing is in flight or unsent there."""

    wanted_usd: float = 0.0
    wanted_calls: int = 0
    first_usd: float = 0.0
    likely_usd: float = 0.0
    usd_left: float = 0.0
    calls_left: int = 0
    quiet: bool = True


@dataclass(slots=True)
class Lease:
    """All that a worker may use until it reports again. `found`: what the journal holds at the
    addresses that it asked about."""

    usd: float = 0.0
    calls: int = 0
    models: dict[str, Grant] = field(default_factory=dict)
    found: dict[str, Entry | None] = field(default_factory=dict)


class LeasedLimiter(Limiter):
    """A worker's limiter: it lets in what the lease covers. `hungry` is told when that is not
    enough, `urgent` when all other workers should know of something."""

    def __init__(
        self, spacing: float, hungry: Callable[[], None], urgent: Callable[[], None]
    ) -> None:
        super().__init__(UNBOUNDED)
        self._own_spacing = spacing
        self._hungry = hungry
        self._urgent = urgent
        self._grant = Grant()
        self._use = Use()

    @property
    def counts_tokens(self) -> bool:
        return self._grant.most < ENDLESS

    def take(self, grant: Grant) -> None:
        """Go on with a lease. It was made out before calls ended that left their places here."""
        grant.places += self._grant.places
        self._grant = grant
        self._spacing = self._own_spacing * grant.sharing
        if grant.held:
            super().hold(grant.held)
        self._pump()

    def report(self) -> Use:
        """What happened since the last report; gives back what is free."""
        use, grant = self._use, self._grant
        use.in_flight = self.in_flight
        waiting = [w.tokens for w in self._waiting if not w.admitted.done()]
        use.waiting, use.tokens = len(waiting), sum(waiting)
        use.first = waiting[0] if waiting else 0.0
        use.starts_left, use.tokens_left = grant.starts, grant.tokens
        use.held = self.held
        self._use = Use()
        endless = grant.starts if grant.starts == ENDLESS else 0.0
        self._grant = Grant(starts=endless, tokens=endless, most=grant.most)
        return use

    def leave(self, places: int = 1) -> None:
        self._grant.places += places
        super().leave(places)

    def succeeded(self, hints: Mapping[str, float] | None = None) -> None:
        self.successes += 1
        self._use.successes += 1
        if hints:
            if self._use.hints is None and self._grant.most == ENDLESS:
                self._urgent()
            self._use.hints = hints

    def rate_limited(self, entered_at: float, retry_after: float | None) -> None:
        self._use.limited.append((self._clock() - entered_at, retry_after))
        if retry_after:
            super().hold(retry_after)
        self._urgent()

    def hold(self, seconds: float) -> None:
        super().hold(seconds)
        self._urgent()

    def learn_hold(self, seconds: float) -> None:
        """Another worker was told to leave the model alone."""
        super().hold(seconds)

    def _admit(self, tokens: float, now: float) -> float:
        grant, tokens = self._grant, min(tokens, self._grant.most)
        if grant.places < 1 or grant.starts < 1 or grant.tokens < tokens:
            if not self.in_flight or grant.places >= 1:
                self._hungry()
            return ENDLESS
        wait = super()._admit(tokens, now)
        if not wait:
            grant.places -= 1
            grant.starts -= 1
            grant.tokens -= tokens
        return wait


class LeasedBudget(Budget):
    """A worker's budget: it grows with each lease, and never says that the money is used up."""

    def __init__(self, whole: Budget, hungry: Callable[[], None]) -> None:
        none = (None if whole.usd is None else 0.0, None if whole.calls is None else 0)
        super().__init__(*none)
        self._hungry = hungry

    def take(self, usd: float, calls: int) -> None:
        """Go on with a lease."""
        if self.usd is not None:
            self.usd += usd
        if self.calls is not None:
            self.calls += calls
        self._pump()

    def report(self, *, quiet: bool) -> Money:
        """What waits; gives back what is free."""
        money = Money(quiet=quiet and not self._in_flight)
        waiting = [w.price for w in self._waiting if not w.admitted.done()]
        if waiting:
            money.wanted_calls = len(waiting)
            money.wanted_usd = sum(price.dearest for price in waiting)
            money.first_usd, money.likely_usd = waiting[0]
        if self.usd is not None:
            money.usd_left = max(0.0, self.usd - self.spent_usd - self._reserved)
            self.usd -= money.usd_left
        if self.calls is not None:
            money.calls_left = max(0, self.calls - self.spent_calls - self._in_flight)
            self.calls -= money.calls_left
        return money

    def _pump(self) -> None:
        self._admit_in_order()
        if self._waiting:
            self._hungry()


class LeasedAllowance(Allowance):
    """What calls of a worker compete for. Models in its own process need no lease."""

    def __init__(
        self, whole: Budget, hungry: Callable[[], None], urgent: Callable[[], None]
    ) -> None:
        super().__init__(LeasedBudget(whole, hungry), UNBOUNDED)
        self.leased: dict[str, LeasedLimiter] = {}
        self._told = hungry, urgent

    def take(self, lease: Lease) -> None:
        """Go on with a lease."""
        assert isinstance(self.budget, LeasedBudget)
        self.budget.take(lease.usd, lease.calls)
        for model, grant in lease.models.items():
            self.leased[model].take(grant)

    def report(self, *, quiet: bool) -> tuple[dict[str, Use], Money]:
        """What happened since the last report, by model; what waits; gives back what is free.
        `quiet`: nothing that was answered is on its way to the head."""
        assert isinstance(self.budget, LeasedBudget)
        uses = {model: limiter.report() for model, limiter in self.leased.items()}
        quiet = quiet and not any(use.in_flight for use in uses.values())
        return uses, self.budget.report(quiet=quiet)

    def limiter(self, model: str, spacing: float, *, local: bool) -> Limiter:
        if local or model in self.limiters:
            return super().limiter(model, spacing, local=local)
        self.limiters[model] = self.leased[model] = LeasedLimiter(spacing, *self._told)
        return super().limiter(model, spacing, local=local)


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


class Lender:
    """Lends what the run's allowance has, to workers by number. `spacing` as in the study file;
    `answered` tells whether a model ever answered; `stop` ends the run."""

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
