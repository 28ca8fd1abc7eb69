"""Concerns of residents about a local plan: who has them, how they say it, what to vote on.

One bank serves thinking, speaking, planning and voting, so that what a resident raises can be found
again in the text of the others and in the items of the planner.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Concern:
    """One concern. `who` finds people who have it, `said` finds it in a text; `pull` is the side
    to which it draws them (−1 against the plan … 1 for it)."""

    key: str
    who: re.Pattern[str]
    said: re.Pattern[str]
    noun: str
    lines: tuple[str, ...]
    item: str
    pull: float


def _c(key: str, who: str, said: str, noun: str, item: str, pull: float, *lines: str) -> Concern:
    flags = re.IGNORECASE
    return Concern(key, re.compile(who, flags), re.compile(said, flags), noun, lines, item, pull)


CONCERNS: tuple[Concern, ...] = (
    _c(
        "rent",
        r"\btenant|\brents?\b|renter|lodger",
        r"\brents?\b|tenants?",
        "what happens to the rents",
        "Cap the rents of tenants who return at five percent above today's for five years",
        -0.5,
        "my rent must not go up so far that I have to leave",
        "a tenant who moves out for the works needs a right to come back at a rent one can pay",
        "nobody has told the tenants what the rents will be afterwards",
        "a fine new flat is no use to the tenants if the rent doubles",
        "half of my pay goes on the rent as it is",
        "a promise about rents means nothing until it stands in the lease of every tenant",
    ),
    _c(
        "contribution",
        r"not afford|modest pension|make ends meet|struggling|income is low|saved? in",
        r"contribution|instal?ments?|cannot pay|can't pay|out of reach|pension",
        "the contribution that owners are to pay",
        "Let owners on low incomes defer their contribution until the home is sold",
        -0.6,
        "the contribution is more than some of us could save in a lifetime",
        "people on a small pension cannot pay that contribution, and no bank will lend it to them",
        "there must be instalments, or a way to put the contribution off until one sells",
        "those who cannot pay the contribution will be the first to go",
        "every letter about the contribution costs me a night's sleep",
        "a contribution of that size is asked of people who count every coin",
        "I would sign tomorrow if the contribution came in instalments that one can bear",
        "paper riches do not help anybody who has no money to pay the contribution",
    ),
    _c(
        "moving",
        r"over seventy|in your sixties|\b(?:60s|70s|elderly|widow|alone)\b|retired",
        r"temporary|move out|moving|relocat|uproot|during the works|move twice|boxes",
        "where we are to live during the works",
        "Guarantee a temporary flat within the neighbourhood to everyone who has to move out",
        -0.4,
        "at my age one does not move twice just like that",
        "those who have to move out need a temporary flat close by, in writing",
        "being uprooted for three years can break people who have lived here for decades",
        "I want to know where we are to live during the works before I sign anything",
        "some of us would spend the last good years among boxes in a temporary flat",
        "whoever has to move out should know the address and the date beforehand",
        "moving in stages, one house after the other, would spare us the worst",
    ),
    _c(
        "access",
        r"disab|wheelchair|ground floor|first floor|1st floor|mobility|walking|stairs",
        r"\blifts?\b|step-?free|ramp|wheelchair|stairs|ground[- ]floor|access",
        "step-free access",
        "Build step-free entrances and lifts in every house and keep ground-floor flats for those "
        "who need them",
        -0.1,
        "without ramps and lifts the new houses are closed to some of us",
        "I need a flat on the ground floor or a lift that works every day",
        "three steps at the door are a wall for somebody in a wheelchair",
        "during the works, too, the way to the door has to stay step-free",
        "step-free access has to be in the plan and not in the small print",
    ),
    _c(
        "company",
        r"\balone\b|lonel|widow|isolated|keep to yourself",
        r"\balone|lonel|common room|look in on",
        "those who live alone",
        "Set aside a common room on the ground floor and fund a visiting service",
        -0.2,
        "those who live alone would lose the few neighbours who look in on them",
        "whoever lives alone needs a door nearby that one can knock at",
        "for people alone the bench in the yard is half of their company",
        "a common room matters more to lonely people than a new facade",
        "the old neighbours must not be scattered over the whole city",
    ),
    _c(
        "information",
        r"hearsay|low information|information_access: low|rarely speak|passive",
        r"plain language|inform|notice|letter|explain",
        "how we are told of things",
        "Send every decision in plain language to all households and explain it at the door",
        -0.1,
        "most of us hear of these things when they are settled already",
        "the letters ought to be in plain language, so that everybody can follow",
        "somebody should come round and explain what it means for each of us",
        "I only heard of this from a notice on the door",
        "one should not have to be a lawyer to follow the letters that they send",
    ),
    _c(
        "noise",
        r"night shift|baby|child|work(?:s|ing) (?:from home|nights)|nurse",
        r"\bnoise|dust|building site|working hours",
        "noise and dust",
        "Limit the noisy works to weekdays between eight and five",
        -0.2,
        "years of noise and dust are no trifle for people who sleep by day or have small children",
        "the building site should keep fixed hours that everybody knows",
        "with the noise of a building site under the window nobody recovers from a night shift",
    ),
    _c(
        "value",
        r"\bowner of|invest|income is high|no daily worry|comfortable|landlord",
        r"\bvalue|worth|price",
        "what our homes will be worth",
        "Commit to the published standard of building so that homes keep their value",
        0.6,
        "the houses are losing value as they are, and the plan would turn that round",
        "it is better to renew now than to pay for one emergency after another",
        "our homes would be worth more, and the street would look cared for again",
        "whoever waits another ten years will see the value of these flats go to nothing",
        "new houses would bring new people, and the quarter would be worth something again",
    ),
    _c(
        "safety",
        r"engineer|parent|safety|plumb|electric|in your thirties|in your forties|30s",
        r"\bsafe|pipes|wiring|heating|insulat|fire",
        "pipes, wiring and heating",
        "Renew pipes, wiring and insulation first, before any other work",
        0.5,
        "the pipes and the wiring are at the end of their life, whatever we would like",
        "warm, safe flats with proper heating repay the trouble",
        "one winter with broken heating was enough for my household",
        "insulation that works would halve the heating bill of everybody here",
        "the fire inspector has said twice that the wiring is not safe",
    ),
    _c(
        "shops",
        r"\bshop|baker|grocer|hairdress|restaurant|caf|merchant|self-employed|business",
        r"\bshops?\b|market|bakery|corner",
        "the small shops",
        "Offer the present shops first refusal on the new premises at a moderate lease",
        -0.1,
        "the small shops on the corner must be able to come back",
        "when the shops go, the street dies, however new the houses are",
    ),
    _c(
        "children",
        r"parent|teacher|\bchild|school|mother|father|in your forties",
        r"\bchildren|play|school|young families",
        "room for children",
        "Add a playground and keep the path to the school open during the works",
        0.3,
        "young families stay where there is room for children to play",
        "the way to school has to stay safe while they build",
        "a playground where one can see it from the window would change our afternoons",
        "this could be a good place for children if we plan for them now",
    ),
    _c(
        "green",
        r"garden|nature|green|environment|in your sixties|know many neighbours",
        r"\btrees?|garden|green",
        "the trees and the gardens",
        "Keep the old trees and lay out a shared garden",
        0.1,
        "the old trees are what makes people sit outside and talk",
        "a tree that took fifty years is not replaced by a row of saplings",
        "a shared garden would cost little and be used every day",
    ),
    _c(
        "control",
        r"account|audit|clerk|manager|documents closely|lawyer",
        r"audit|overrun|budget|the costs|figures",
        "control of the costs",
        "Have an independent auditor report on costs to all residents every half year",
        0.1,
        "I want to see independent figures, because such budgets overrun as a rule",
        "somebody who does not earn by it should check the costs twice a year",
        "the figures in the brochure leave out what usually goes wrong",
        "I have read the budget, and the reserve in it is too small",
    ),
)
# These come first for those who have them.
_PRESSING = frozenset({"access", "company"})
BY_KEY = {c.key: c for c in CONCERNS}
_LOCAL_PLAN = re.compile(
    r"redevelop|renovat|housing|neighbou?rhood|residents?\b|urban|demoli|\bplanner\b", re.IGNORECASE
)


def is_local_plan(text: str) -> bool:
    """Whether a text is about building or planning where people live."""
    return bool(_LOCAL_PLAN.search(text))


@lru_cache(maxsize=4096)
def held_by(persona: str) -> tuple[Concern, ...]:
    """The concerns that a description suggests, strongest first (by number of its signs)."""
    found = [(len(c.who.findall(persona)) + (c.key in _PRESSING), c) for c in CONCERNS]
    held = [(n, c) for n, c in found if n > (c.key in _PRESSING)]
    return tuple(c for _, c in sorted(held, key=lambda nc: -nc[0]))


@lru_cache(maxsize=8192)
def raised_in(text: str) -> tuple[Concern, ...]:
    """The concerns that a text speaks of, first named first."""
    found = [(m.start(), k) for k, c in enumerate(CONCERNS) if (m := c.said.search(text))]
    return tuple(CONCERNS[k] for _, k in sorted(found))
