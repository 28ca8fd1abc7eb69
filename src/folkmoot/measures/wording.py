"""The phrases in which results are reported. `word` makes sentences from these phrases.

`PHRASES` holds the phrases, with one part for each kind of result.
"""
# The parts of the table:
#   comparison   the result of a claim, by verdict and direction
#   runs         what `compare` says of two runs
#   power        what `power` says before a run
#   estimate     claims without a conclusion
#   grid         a claim over all specifications of a grid
#   check        a check of the model, with its limit by verdict
#   control      the controls of a run
#   card         the validity card: one phrase for each threat and verdict
#   figure       the figures of the card
#   advice       what gives a verdict on a threat that is not known
#   description  figures that were counted or computed and not tested
#   refusal      why there is no test, no interval or no figure
#
# No phrase says more than was tested. A test that is not significant does not show equality, so no
# phrase says "unchanged", "as large as" or "the same". Only a specification curve says "robust".
# Wasserstein and Lazar (2016), doi:10.1080/00031305.2016.1154108, principles 2 and 5.

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

Kind = Literal[
    "comparison",
    "runs",
    "power",
    "estimate",
    "grid",
    "check",
    "control",
    "card",
    "figure",
    "advice",
    "description",
    "refusal",
]


class Sentence(str):
    """A text that reports a result. Only `word` and `join_sentences` make such texts."""

    __slots__ = ()


def word(kind: Kind, case: str, /, **parts: object) -> Sentence:
    """Return a sentence of the report.

        word("check", "passed", margin="at most 5 %")  # "inside the margin (at most 5 %)"

    - `kind`, `case`: the keys of the phrase in `PHRASES`.
    - `parts`: the values of the placeholders.

    Raises KeyError for an unknown case or placeholder.
    """
    return Sentence(PHRASES[kind][case].format(**parts))


def label_illustration(units: str, says: str) -> str:
    """Return the statement `says` with the label that it is an illustration, not evidence.

    `units`: the number of independent units in words, such as "3 groups".
    """
    labelled = word("description", "illustration", units=units, says=says)
    # A plain string did not come from `word`, so it must not become a `Sentence` here.
    return labelled if isinstance(says, Sentence) else str(labelled)


def join_sentences(sentences: Iterable[Sentence | None], between: str = " ") -> Sentence:
    """Join sentences with `between`. Empty sentences and None are left out."""
    return Sentence(between.join(filter(None, sentences)))


def swap_words(text: str, first: str, second: str) -> str:
    """Return a text in which two words have changed places.

    Returns "" unless each of the two words occurs exactly once.
    """
    found = [re.findall(rf"(?<!\w){re.escape(name)}(?!\w)", text) for name in (first, second)]
    if not all(len(places) == 1 for places in found):
        return ""
    either = rf"(?<!\w)({re.escape(first)}|{re.escape(second)})(?!\w)"
    return re.sub(either, lambda match: second if match[0] == first else first, text)


# Introduces figures of too few independent units for an interval.
ILLUSTRATION_LABEL = "An illustration, not evidence"
# Introduces claims that are not primary, so secondary or exploratory, in a finding without a
# primary one.
ESTIMATES = "Estimates without a conclusion:"
# Introduces the largest or smallest of several figures. Another run may have another one.
OBSERVED = "Observed in this run, not tested:"
PHRASES: Mapping[Kind, Mapping[str, str]] = {
    # `{first}` and `{second}` are the conditions, `{margin}` is the margin. `{by}` and `{over}` are
    # the margin with a preposition, and empty without one.
    "comparison": {
        "supported, different": "a difference{over} is shown",
        "supported, greater": "it is supported that {first} exceeds {second}{by}",
        "supported, less": "it is supported that {first} falls below {second}{by}",
        "supported, equivalent": "equivalent, because they differ by less than {margin}",
        "contradicted, different": "contradicted, because they differ by less than {margin}",
        "contradicted, greater": "it is contradicted that {first} exceeds {second}{by}",
        "contradicted, less": "it is contradicted that {first} falls below {second}{by}",
        "contradicted, equivalent": "contradicted, because they differ by more than {margin}",
        "neither shown nor ruled out, different": "a difference{over} is neither shown nor ruled "
        "out",
        "neither shown nor ruled out, greater": "it is neither shown nor ruled out that "
        "{first} exceeds {second}{by}",
        "neither shown nor ruled out, less": "it is neither shown nor ruled out that "
        "{first} falls below {second}{by}",
        "neither shown nor ruled out, equivalent": "a difference of less than {margin} is neither "
        "shown nor ruled out",
        "answer": "{levels}; difference {difference} ({numbers}): {verdict}.",
        "conclusion": "{contrast} {difference} ({numbers}): {verdict}",
        "difference": "{difference} ({numbers}); {verdict}",
        "conclusion without numbers": "{estimate}: {verdict}",
        "answer without numbers": "{contrast}: {verdict}.",
        "statement": "{claim}; {verdict}{numbers}.",
        "several": "{conclusions}.",
        "also in the table": "The table also has {estimates}, without a conclusion.",
    },
    "runs": {
        "none tested": "{comparisons}, none of which can be tested; see the table.",
        "none shown": "No difference is shown in any of {comparisons}; see the table.",
        "further": "{comparisons} in the table.",
        "without a test": "{comparisons}: {why}.",
        "difference": "{measure}, {contrast}: {difference}.",
        "equivalent": "Equivalent within {margin}.",
        "effects differ": "{effects}; the effects differ{numbers}.",
        "effects not shown to differ": "{effects}; that the effects differ is not shown{numbers}.",
        "effects not compared": "{effects}; their difference{numbers}: {why}.",
        "effects": "{measure}, {contrast}: {first} in {first_run}, {second} in {second_run}",
        "types": "These are different study types ({types}): their figures answer different "
        "questions.",
        "designs": "The designs differ in {settings}.",
        "several settings": "A difference in results may come from any of these.",
        "same settings": "All settings that matter are the same: differences are chance or the "
        "model.",
        "same people": "{runs} drew the same people as {first}.",
        "unfinished": "{run} did not finish ({partial}).",
        "people": "{files}: answers by people.",
        "people, texts": "What they read is not known. Differences hold for their texts and for "
        "those that the run drew.",
        "people, few draws": "Participants of {run} read {draws} of the texts: differences from "
        "people hold for these texts only.",
        "unmatched arms": "{file} has conditions that no run has, which are left out: {arms}.",
        "missing rounds": "{file} has no {rounds}: comparisons with it, and all effects that are "
        "compared here, leave these rounds out.",
        "missing answers": "In {file}, {rows} have no `{column}`, and no figure that needs it "
        "counts them.",
        "weights": "Each row of {file} counts once: its column `{column}` is not applied.",
        "respelled": "Choices in {file} that differ only in spelling are one choice: {spellings}.",
        "unmatched choices": "No participant of a run chose {choices} ({answers} in {file}): see "
        "how options are written.",
        "groups off": "Off by more than chance: {groups}",
        "groups not shown": "That any is off by more than chance is not shown.",
        "opinions": "Other shares of the options than in {first}: {votes}.",
        "votes": "{votes} ({distance} apart, adjusted {p})",
        "opinions not shown": "That the shares of the options differ from those in {first} is not "
        "shown for {votes}.",
        "opinions not tested": "Not tested against {first}: {votes}.",
        "starting points": "Runs that start from different opinions leave different room for "
        "change.",
        "nothing": "The runs share no condition of a claim and no numeric measure.",
    },
    "power": {
        "claim": "{claim}: {power}{needed}.",
        "needed": " ({units} in each arm needed, {planned} in this design)",
        "after a run": "its table is known only after a run: use --simulate",
        "no size": "the size of the design is known only after a run: use --simulate",
        "draws": "its unit is the draw of the summaries, which only --simulate takes into account",
        "few units": "not tested: an illustration of {units}",
        "no rate": "{difference} from {base} in {arm} is not a rate",
        "at": "a power of {power} at {difference} from {base} in {arm}",
        "at, up to": "a power of {power} (up to {most} if other claims are supported) at "
        "{difference} from {base} in {arm}",
        "from": "a power of {power} from {difference} on, from {base} in {arm}",
        "none": "no difference from {base} in {arm} reaches a power of {power}",
        "mean": "a power of {power} if the true difference lies {size} standard deviations of the "
        "{quantity} beyond the margin",
        "mean, equivalent": "a power of {power} at a true difference of {difference} if the margin "
        "is at least {size} standard deviations of the {quantity}",
        "mean, not equivalent": "no number of units gives a power of {power} at a true difference "
        "of {difference}, which is not within the margin",
        "people": "For an interval of {width} points to each side of a share, ask {most} people in "
        "each arm{groups} if the simulation tells nothing of them, and {fewest} if it follows them "
        "at a correlation of {fit}.",
        "shares": "{title}: {conditions} of {participants}. If {base} change in one condition, "
        "{detected}.",
        "rate": "a difference is detected with a power of {power} when {rate} or more change in "
        "another",
        "no detectable rate": "no difference is detected with a power of {power}, however many "
        "change in another",
        "strictest rate": "{detected}; at the strictest level for {claims} primary claims, from "
        "{adjusted} on",
        "no strictest rate": "{detected}; at the strictest level for {claims} primary claims, none "
        "is detected",
        "one condition": "A run with one condition compares nothing within itself: the figures "
        "hold for two runs of this size.",
        "chance": "A true change from 10 % to 20 % is detected with a power of {power} at {units} "
        "per condition.",
        "participants": "To detect a change from 10 % to 20 % with a power of {power}, {needed} "
        "participants per condition are needed; this design has {units}.",
        "paired": "{title}: {units}, each under {conditions}. A difference between "
        "two conditions is detected with a power of {power} from {size} standard deviations of the "
        "differences between {unit}s on.",
        "paired, several claims": "{title}: {units}, each under {conditions}. A "
        "difference between two conditions is detected with a power of {power} from {size} "
        "standard deviations of the differences between {unit}s on ({adjusted} at the strictest "
        "level for {claims} primary claims).",
        "effective": "{people} per condition in {units} of about {members} are worth {worth} "
        "independent ones at an ICC of {icc} (the similarity of people in one conversation).",
        "clusters": "{title}: {conditions} of {units} with {members} participants. At an ICC of "
        "{icc} (how alike people in one conversation are) {people} participants are worth {worth}, "
        "and {detected}.",
        "change": "a change from {base} to {rate} is detected with a power of {power}",
        "no detectable change": "no rate is detected as different from {base} with a power of "
        "{power}",
        "too small": "{title}: {units} per condition. Differences need at least two; with one, an "
        "effect cannot be distinguished from chance.",
        "unknown size": "{title}: the settings do not say how many take part in each condition, so "
        "here is what two groups of a given size can detect.",
        "simulated": "{number}. {claim}{expected}: supported in {shares}.",
        "expected": " (expected: {difference})",
        "simulated share": "{share} ({interval}) at {size}",
        "simulated, why": "Where it is not: {why}.",
    },
    "estimate": {
        "one": "{contrast} {difference} ({interval})",
        "unknown": "{contrast} unknown ({why})",
        "of a measure": "{about}: {estimate}",
        "doubtful": f"{{doubt}} {ESTIMATES} {{estimates}}.",
        "listed": f"{ESTIMATES} {{estimates}}.",
        "listed of a measure": f"{{about}}. {ESTIMATES} {{estimates}}.",
        "more": "{estimates} and {number} more in the table",
    },
    "grid": {
        "curve": "{claim}: {result} ({details}).",
        "robust": "robust over {over}",
        "mixed": "mixed over {over}",
        "fragile": "fragile over {over}",
        "contradicted": "contradicted over {over}",
        "not tested": "not tested over {over}",
        "too few": "{over} cannot carry a statement about robustness, which needs {fewest}",
        "cells": "supported in {supporting} of {cells}",
        "cells, contradicted": "supported in {supporting} and contradicted in {contradicting} of "
        "{cells}",
        "span": "estimates from {least} to {most}",
        "one estimate": "estimate {least}",
        "further": "a further one is predicted between {least} and {most}",
        "joint": "joint {p} at a level of {level}",
        "merged": "not counting {specifications}",
        "design": "{finished} of {cells} cells have finished.",
        "unusable, one": "1 cell holds nothing usable and enters no figure.",
        "unusable, several": "{number} cells hold nothing usable and enter no figure.",
        "cards": "At least one check of the card failed in {failed} of {runs}.",
        "few repeats": "With {repeats} the variance between draws is an illustration: intervals "
        "over repeats need at least {fewest}.",
        "same sign, one": "Of {differences} with several estimates 1 has the same sign in all "
        "specifications.",
        "same sign, several": "Of {differences} with several estimates {number} have the same sign "
        "in all specifications.",
        "equal, one": "{differences} has equal estimates in all of its specifications.",
        "equal, several": "{differences} have equal estimates in all of their specifications.",
        "described": "This describes the grid; only primary claims are judged.",
        "repeat by repeat": "{differences} in one specification, repeat by repeat.",
        "all equal": "{value} in each of {specifications}.",
        "range": "From {least} ({first}) to {most} ({last}).",
        "variance": "The share of the variation between cells that goes with each setting and with "
        "the draw of people and replies (repeat); the rest is their interplay.",
    },
    "check": {
        "passed": "inside the margin ({margin})",
        "failed": "outside the margin ({margin})",
        "not known": "not known to be inside the margin ({margin})",
        "summary": "{passed} of {checks} passed.",
        "of model": "{title}: {says}",
        "summary, not known": "Not known: {titles}.",
        "margin of people": "at least {low:.2f}, the lowest found among people over days of "
        "deliberation",
        "acquiescence": "Acceptance of opposite statements: {value} ({interval}; 0 is consistent, "
        "+1 says yes to everything).",
        "instability": "Asked again without any new information, {share} chose differently "
        "({interval}): {limit}.",
        "instability, all equal": "Asked again without any new information, all {pairs} the "
        "first, a correlation of {correlation}: {limit}.",
        "instability, numbers": "Asked again without any new information, {pairs} "
        "correlate at {correlation}: {limit}.",
        "instability, random": "The first and the last answer of a participant to a question "
        "hardly agree beyond chance ({sign} = {agreement}): {limit}. These may be answers at "
        "random.",
        "position bias": "Largest estimate of how much a place in the list moves the chance of "
        "being chosen: {points} at place {place} ({interval}; the margin is {margin} either way).",
        "sycophancy": "An opposing view without any reason moved {points} more than simply asking "
        "again ({interval}).",
        "sycophancy, yielded": "{share} of participants who met arguments took the other side "
        "({interval}): {limit}.",
        "sycophancy, politeness": "{share} of the utterances in reply to a challenge open with "
        "agreement ({interval}). Politeness can be distinguished from giving in only with a "
        "condition in which the opposing view comes without reasons, beside one that votes twice.",
        "pull, interviews": "After the discussion, the positions of participants were {change} "
        "closer to those of the others than after interviews alone: {limit}.",
        "pull, only fails": "A group that gives in to what was said in earlier questions shows "
        "this as well, so this control can only fail.",
        "pull, order": "In a random order, an answer moved {change} further towards the others for "
        "each place later in the speaking order: {limit}.",
        "spread of votes": "First votes were spread as widely as over {effective} equally popular "
        "options of {options} (evenness {value}, {interval}; people {people} with five to nine "
        "options).",
        "spread of votes, last": "Last votes were spread over {ratio} times that number "
        "({interval}; people {people} after days of deliberation).",
        "spread of votes, less": "They differ less than votes of people in the benchmark.",
        "spread of votes, few": "Evenness alone cannot pass votes on fewer than {fewest} options, "
        "because the benchmark has no such votes.",
        "spread of votes, more": "They are spread more evenly than votes of people in the "
        "benchmark, as answers at random would be.",
        "spread of ratings": "Ratings have a standard deviation of {value} of the scale "
        "({interval}; median of {items}; people {people}).",
        "spread of ratings, less": "They differ less than in the benchmark.",
        "spread of ratings, more": "They differ more than in the benchmark.",
        "malformed": "{share} of {replies} needed a repair or a re-ask{sure}.",
        "off_list": "{share} of {replies} were outside the allowed answers{sure}.",
        "over_length": "{share} of {replies} were far too long{sure}.",
        "refusals": "{share} of {replies} ended in a way out or a refusal{sure}{reasons}.",
        "refusals, whole answers": "Ways out in single fields of JSON answers are not counted.",
        "refusals, not certain": "This is not certain: {unread} could not be read and may be "
        "refusals in other words.",
        "refusals, possible": "Possible refusals by English phrases: {possible} of {texts}; this "
        "count does not affect the verdict.",
        "cut": "{share} of {replies} were cut by the token limit.",
        "cut, context window": "{share} of {replies} were cut by the context window of the model.",
        "cut, both limits": "{share} of {replies} were cut by the token limit or by the context "
        "window of the model.",
        "unit": "Shares of replies are judged over {units}, because the replies of one are alike.",
        "unit of claims": "Participants read each other's words ({conversations}), but a claim "
        "counts {units} independent units, so its interval may be too short. For study authors: if "
        "a column holds the conversation, name it as the `unit_column` of the claim.",
        "unit of claims, unknown sources": "Participants may have read each other's words, because "
        "prompts hold texts without a recorded source. At worst they are {conversations}, but a "
        "claim counts {units} independent units, so its interval may be too short. For study "
        "authors: put such texts in as variables, or set `reply_unit`.",
        "unit, unknown sources": "Prompts hold texts without a recorded source, which may be those "
        "of others. For study authors: put such texts in as variables, or set `reply_unit`.",
        "yes": "{share} of {answers} were yes{sure}.",
        "sure": " ({interval}; {units}; the margin is {margin})",
        "instructions": "{share} of {replies} failed: {asked_again} needed a further request, "
        "{looped} repeated themselves, {cut} were cut",
        "instructions of model": "{model}: {counts}",
        "instructions, alarm": "This model did not follow the instructions: {model}. {counts} "
        "(limit {limit}).",
    },
    "control": {
        "passed": "yes",
        "failed": "no",
        "not known": "not known",
        "asked": "{speakers}: {answers}, {missing} without an answer",
        "asked, leading": "{speakers} (not participants): {answers}, {missing} without an answer",
        "asked, shared": "{speakers} in replies that speak for several: {answers}, {missing} "
        "without an answer",
        "share": "{name}: {share}",
        "share the same": "{name}: {share} the same",
        "numbers the same": "{name}: {share} the same, correlation {correlation}",
        "no answer": "{name}: no answer",
        "drift": "Drift is at most {margin} in {passed} of {contrasts}",
        "drift, failed": "above it in {names}",
        "drift, not known": "not known in {number}",
        "drift, alarm": "User drift: {name}.",
        "questions": "Of {comparisons} ({questions}) {equal} are equal within their "
        "margin, {other} differ by more, and of {unknown} it is not known.",
        "distributions": "The share of each answer, or mean and standard deviation of numbers, in "
        "{groups}.",
        "kept, alarm": "Persona not kept: {name}.",
        "reliability, alarm": "Unreliable decision: {name}.",
        "order, alarm": "Answers depend on the order: {name}.",
        "length, alarm": "An effect remains with neutral texts of equal length: {name}.",
        "effect": "{contrast} ({decision}): {versions}",
        "version": "{version} {share}",
        "version, changed": "{version} {share} with {changed} of answers changed",
        "length, not known": "Whether an effect comes from the length of the texts is not known in "
        "{number} of {over}, because shares of answers do not establish an effect as designed "
        "there ({why}).",
        "effect not established": "adjusted p of .05 or more in {number}",
        "effect not tested": "too few units for a test in {number}",
        "across": "Against {first}: {changes}.",
        "across, one": "{contrast}, {specification}: {changes}",
        "across, few": "{contrast}, {specification}: {changes} ({few})",
        "change": "{what} {before} to {after}",
        "variance": "{decision}: {share} of the variance lies between participants.",
        "variance, attributes": "{decision}: {share} of the variance lies between participants; of "
        "single attributes, {attributes}.",
    },
    # A card phrase says what was tested. "Passed" and "failed" are whole sentences; "not known"
    # ends with advice.
    "card": {
        "Instructions followed, passed": "Few first replies were unreadable, cut or repetitive, "
        "and no check reads what they mean.",
        "Instructions followed, failed": "Many first replies were unreadable, cut or repetitive, "
        "so answers may not mean what they say.",
        "Instructions followed, not known": "First replies may fail more often than the margin: "
        "{advice}.",
        "Refusals, passed": "Few answers are missing by refusal over all conditions together, "
        "though one condition may lose more.",
        "Refusals, failed": "The figures describe only answers that were given, and those who "
        "refused may think otherwise.",
        "Refusals, not known": "Participants may refuse more often than the margin over all "
        "conditions together, one condition may lose more, and those who refuse may think "
        "otherwise: {advice}.",
        "Reliability (retest), passed": "Answers to a question that was asked twice agree within "
        "the margin, and what differs is noise that changes in this report contain as well.",
        "Reliability (retest), failed": "Answers to a question that was asked twice agree too "
        "little, so changes in this report may be noise in part.",
        "Reliability (retest), not known": "Noise may be as large as the changes reported: "
        "{advice}.",
        "User drift, passed": "Answers to questions that the treatment should not change differ "
        "between conditions by at most the margin, and other attributes were not asked.",
        "User drift, failed": "Answers to questions that the treatment should not change differ "
        "between conditions, so an effect may be one of other people in another condition.",
        "User drift, not known": "An effect may be one of other people in another condition: "
        "{advice}.",
        "Persona kept, passed": "Participants still give the age of their persona, and no other "
        "attribute was asked.",
        "Persona kept, failed": "Fewer participants than the margin asks still give the age of "
        "their persona, so figures may describe other people than those who were drawn.",
        "Persona kept, not known": "Participants may forget who they are: {advice}.",
        "Order effect, passed": "The order of options moved answers by at most the margin.",
        "Order effect, failed": "The order of options moved answers, so shares hold for the "
        "orders that were shown.",
        "Order effect, not known": "The order of options may have moved answers: {advice}.",
        "Wording, passed": "The primary claims are robust over the wordings that were tried.",
        "Wording, failed": "A primary claim is not robust over the wordings that were tried, so "
        "no single wording may be reported alone.",
        "Wording, not known": "Results may depend on the wording: {advice}.",
        "Human benchmark, passed": "People and models differ by at most the margin in each "
        "comparison that was made.",
        "Human benchmark, failed": "People and models differ in a comparison that was made, so "
        "these figures are no estimate of people's.",
        "Human benchmark, not known": "People may answer otherwise: {advice}.",
    },
    "figure": {
        "one": "{figure}.",
        "check": "{says}",
        "labelled": "{label}: {figure}.",
        "of several": "{figure} Of {number}: {counts}.",
        "count": "{number} {verdict}",
        "instructions": "{share} of {replies} failed; the margin is at most {margin}",
        "same": "{share} decide the same again; the margin is at least {margin}",
        "same, numbers": "{share} give the same number again, and the correlation of both numbers "
        "is {correlation}; the margin is at least {margin} or {least}",
        "kept": "{share} give their age; the margin is at least {margin}",
        "drift": "over the questions that no treatment should change, shares of answers are "
        "{distance} apart on average; the margin is {margin}",
        "order": "{share} answer the same, {excess} {direction} than when asked again without a "
        "new order, and shares of answers move by {shift}; the margin is at most {margin}",
        "order, not asked again": "{share} answer the same, and shares of answers move by {shift}; "
        "the margin is at most {margin}",
        "no answers": "the control was asked, and no reply is an answer (refusals and replies that "
        "could not be read are under “Who was asked”)",
        "people, passed": "people and models differ by at most the margin",
        # A number has no margin and fails by its test.
        "people, failed": "people and models differ",
        "people, not known": "whether people and models differ is not known",
    },
    "advice": {
        "more units": "more participants or groups are needed",
        "more wordings": "try more wordings or more participants",
        "more people": "more people have to answer",
        "noise": "how many answers change without a new order is not known, because this decision "
        "was not asked again",
        "no reply": "no first reply of a recorded answer could be checked",
        "not checked": "the model was not checked",
        "wordings": "to know it, put {fewest} or more wordings of the prompts into folders and run "
        "`folkmoot run STUDY --grid {axis}=FOLDER,FOLDER,…`",
        "people": "to know it, let people take seats (`seats:` in the study file) or compare with "
        "`folkmoot compare RUN --people FILE`",
        "no decisions": "this study type records no decisions that a control could continue",
        "no ages": "no table of this run has a column for the age of personas, so no control can "
        "ask for it",
        "unfinished": "the controls are not finished, and `folkmoot run STUDY --resume` asks the "
        "rest",
        "unusable": "the run has no usable result, so its controls were not asked; {command} asks "
        "them",
        "resume": "`folkmoot run STUDY --resume` asks it after the rest of the run",
        "begun": "the controls are not finished, and the `folkmoot controls` command that began "
        "them asks the rest",
        "missing": "the controls were asked, but their folder is missing",
        "ask": "to know it, run {command}",
        "ask later": "to know it, run {command} once the run has finished",
        "too few": "its control was asked, and too few replies are answers (refusals and replies "
        "that could not be read are under “Who was asked”)",
        "leading roles only": "its control was asked, but of no participant",
        "nothing to reverse": "its control found no list that it could reverse in the prompts of "
        "these decisions",
        "not asked again": "its control could not ask these decisions again, and the column "
        "`missing` of the table `control_answers` has the reasons",
        "left out": "its controls left it out, so write `{control}: true` under `controls:` in the "
        "study file of the next run",
    },
    "description": {
        "people in several groups": "{people} in several groups. Intervals and tests "
        "take groups as independent, and groups that share people are not: add people to the file, "
        "or lower num_personas or replications.",
        "illustration": f"{ILLUSTRATION_LABEL}: {{units}}. {{says}}",
        "effect of reply": "{claim} {changed} with the changed reply, {original} with the "
        "original one; difference {difference} ({interval}).",
        "effect of reply, unknown": "{claim}: not known with both the changed and the original "
        "reply.",
        "figures of forks": "{clear} figures of {figures} have an interval without zero.",
        "figures of forks, one clear": "1 figure of {figures} has an interval without zero.",
        "figures of forks, no interval": "{figures}, without intervals.",
        "values": "{what}: {values}.",
        "list": "{values}.",
        "beside humans": "{what}: {people} in people ({design}); {values}.",
        "effective options": "Effective number of the {options} options: {values}.",
        "ratio": "Ratio of after to before: {values}.",
        "unlike people": "The spread of the votes is unlike that of people: {names}. Differences "
        "between participants and rates of change are unreliable there.",
        "inside": "Inside the human range: {names}.",
        "not known": "Not known: {names}.",
        "would buy": "{share} would definitely or probably buy it{price}, asked in private after "
        "the discussion; {people} people in {groups}.",
        "not counted": "Not counted: {answers}.",
        "result of": "{outcome}: {result}.",
        "no vulnerable": "At {level} no vulnerable residents took part; the others scored "
        "{general}.",
        "no score": "At {level} vulnerable residents have no score; the others scored {general}.",
        "gap": "At {level} {group} scored {vulnerable} of 4 and the others {general}: a "
        "{kind} of {gap}.",
        "gaps": "Gaps within one level are exploratory and support no conclusion.",
        "same gaps": "With only the references that a text rule finds in the statement, the gaps "
        "are equal to two decimals.",
        "other gaps": "With only the references that a text rule finds in the statement, the gaps "
        "are {gaps}.",
        "other direction": "The direction differs at level {levels}.",
        "planted": "The positions before the discussion were planted, not asked.",
        "distribution": "Answers range from {least} to {most}; half of them are at or below "
        "{median} ({answers}).",
        "odds": "The table gives the odds of changing relative to {base}, with {held} held equal. "
        "The estimates are exploratory and support no conclusion.",
        "talk time": "The moderator spoke {share} of the words. Among participants the Gini "
        "coefficient of words is {gini} (0: equal shares).",
        "rejected": "Decisions that give a member something they firmly reject: {counts}.",
        "text score": "The first choice by the text score is the member's own first choice in "
        "{same} of {statements} statements ({others} others have no first choice).",
        "same rules": "All six rules take the same option in {same} of {decisions} with ballots.",
        "other winner": "The winner differs in {differing} of {decisions} with ballots.",
        "decisions": "{decisions} of {groups}.",
        "coded decisions": "Codes of who gets what agree with the record: {rates}.",
        "impure": "{impure} of {proposals} speak of rules, figures of support, theory or "
        "procedure.",
        "all measures": "Every measure for the vulnerable and for the general residents, and the "
        "gap.",
        "moved outcome": "Share of the votes that would have to be moved to turn the first result "
        "into the final one: {values}. If many more participants changed, their moves cancelled "
        "out.",
        "same outcome": "In no condition did the result change: every option kept its number of "
        "votes.",
        "referring": "{replies} of {answers} answers refer to another participant.",
        "alpha, high": "Krippendorff's alpha is {alpha}: high enough for conclusions, as is "
        "customary.",
        "alpha, fair": "Krippendorff's alpha is {alpha}: high enough for tentative conclusions.",
        "alpha, low": "Krippendorff's alpha is {alpha}: too low to rely on either without reading "
        "the answers.",
        "movers": "{count} of {people} people changed their position by {least} or more.",
        "on a scale": "{result} Positions lie between −1 and 1.",
        "waverers": "When the question was asked again before the discussion, {count} of {people} "
        "gave a position that differs as much. The two counts are not compared.",
        "without a position": "Statements without a position, not counted: {statements}.",
        "closer": "Positions came closer to the others' first positions by {change} on the scale "
        "from −1 to 1{spread}.",
        "disagreeing": "{share} of the answers after the first one to each question disagree "
        "openly.",
        "apart": "Level {levels} is reported apart from the main comparison.",
        "passed items": "Share of the ballot items of vulnerable residents that passed, as a mean "
        "over sets: {values}.",
        "value": "{name} {value}",
        "changed": "{condition}: {count} of {participants} changed, {share}",
        "no one changed": "No participant changed their choice.",
        "ended early": "The study ended before the final votes: {why}.",
        "mean scores": "Mean of the members' scores on a scale from {least} to 4, over {groups}: "
        "{values}.",
        "open slots": "Slots left open count as −4 ({slots}).",
        "noise": "When asked again without new information, {share} choose differently: this is "
        "noise. “Differences between conditions” gives the changes beyond it.",
        "placebos": "{conditions} contain no argument, so changes there do not come from "
        "arguments.",
        "opposing view": "Of {participants} who faced an opposing view, {moved} moved to it, "
        "{elsewhere} to another option, {stayed} stayed.",
        "beyond chance": "That is {share} of those who moved; random moves would give {expected}.",
        "agreeing replies": "{share} of their replies open by agreeing.",
        "first place": "Estimated effect of being listed first on an option's chance of the first "
        "vote: {points}.",
        "statistic": "Stuart and Maxwell's statistic for a shift of the totals per option, without "
        "a conclusion: {values}.",
        "votes changed": "{votes} changed.",
        "responses": "{responses} between {residents}.",
        "texts agree": "The source of each text in a prompt was recorded when the prompt was made. "
        "The recorded texts agree with the design.",
        "texts do not agree": "The source of each text in a prompt was recorded when the prompt "
        "was made. The recorded texts do not agree with the design.",
        "claims": "{claims} ({families}), of which {tested} could be tested.",
        "courses": "Mean {what} per participant under {values}.",
        "means": "Mean {what}: {values} ({number}).",
        "under": "{value} under {condition}",
        "people and models": "{people} and {participants} played by models answered at least one "
        "of the same {questions}",
        "people and models, one": "{people} and {participants} played by models answered the same "
        "question",
        "few units": "an illustration of {units}",
        "observed": f"{OBSERVED} {{what}}.",
    },
    "refusal": {
        "not tested": "not tested",
        "not tested because": "not tested ({why})",
        "interim": "interim figures of an unfinished run",
        "cannot be tested": "cannot be tested ({why})",
        "few units": "not tested ({units} an illustration)",
        "few draws": "not tested (draws of the summaries in a run: {draws}; the runs also differ "
        "in these texts)",
        "not asked again": "No participant was asked twice without new information, so the noise "
        "is not known.",
        "all answers equal": "All participants gave the same answer, so agreement with an earlier "
        "answer cannot be distinguished from chance.",
        "no opposite statements": "The study has no pair of opposite statements.",
        "one order": "No options were shown in several orders, so the effect of an option's place "
        "cannot be separated from its appeal.",
        "few who chose": "Too few independent units chose to tell the effect of an option's place.",
        "few differences": "Too few choices differ to tell the effect of an option's place.",
        "no dialogue": "The run has no condition in which an opposing view comes without reasons, "
        "and no dialogue, so nothing can be judged.",
        "no control of the group": "No position is known both with and without the group.",
        "alike alone": "After the interviews alone the positions of participants were "
        "{distance:.2f} from those of the others on average: too close to see whether the group "
        "brings them closer.",
        "no control": "It is not known whether participants gave in: they may have learned from "
        "each other, and extreme positions regress towards the mean. A control, in which "
        "they answer alone or in a random order, can show whether they gave in.",
        "no second votes": "No participant voted twice, so changes cannot be reported.",
        "few changes": "There are too few changes for a test of whether the totals per option "
        "shifted.",
        "no floor": "This run cannot separate persuasion from noise, because no participant voted "
        "again without new information. A second vote in simple voting separates the two.",
        "nothing scored": "No decision could be scored.",
        "no slope": "Too few answers refer to another participant for a slope over speaking order.",
        "no data": "{about}: there are no data to compare ({why}).",
        "not compared": "The concepts cannot be compared: no final position is known for "
        "{concepts}.",
        "no final position": "No final position is known for {concepts}.",
        "nothing to fit": "{who} changed, so no regression can be fitted.",
        "too few to fit": "Too few participants ({participants}) for a regression.",
        "no estimate": "This model gives no estimate for the conditions.",
        "one code": "all have the same code, so agreement cannot be distinguished from chance.",
        "few votes": "Too few votes to say.",
        "few ratings": "Too few ratings to say.",
        "few retests": "Too few different answers were given twice to say.",
        "few yes or no": "Too few answers with known words for yes and no to say.",
        "no answers": "No answers in this run.",
        "no such answers": "No such answers in this run.",
        "no closed answers": "No reply of this run had to be a single choice or number.",
        "no finish reasons": "The model reports no finish reasons.",
        "earlier version": "An earlier version made this run. Participants could not decline "
        "closed answers in it.",
        "controls unfinished": "The study file names controls, and not all of them were asked: a "
        "resume of the run (--resume) asks the rest.",
        "controls, unusable": "The study file names controls. They were not asked, because the run "
        "has no usable result: {reason}.",
        "controls missing": "The controls were asked, but their folder is missing: restore it "
        "from a copy.",
        "nothing to test": "{what}; nothing can be tested.",
        "no variance": "{decision}: all answers are equal, so that no variance can be divided.",
        "change not known": "{contrast}, {specification}: not known",
    },
}
NOT_TESTED = word("refusal", "not tested")
# In place of a verdict on a claim that is not primary.
NO_CONCLUSION = "no conclusion"
EXPLORATORY = "Exploratory: estimates with intervals, without conclusions."
# The limit of a sealed plan: whoever rewrites the plan can also compute its hashes again.
FIXED_BEFOREHAND = (
    "fixed before the first call according to plan.json, which only a digest published beforehand "
    "can prove"
)
EXPLORATORY_TESTS = (
    "Adjusted p: for the tests of this table alone by Holm's method. They are exploratory and "
    "support no conclusions, and 95 % intervals are not adjusted."
)
