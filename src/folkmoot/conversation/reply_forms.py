"""Reduce a short reply to the answer, without decoration and phrases such as "My answer is"."""

# A carrier phrase is a phrase without meaning around an answer, such as "My answer is". Decoration
# is, for example, Markdown or quotation marks. A reply is reduced step by step, and each result is
# called a form of the reply. `choices.py` compares the forms with options and numbers. Prose is not
# searched for answers.

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from functools import cache, lru_cache

from folkmoot.hidden_characters import without_hidden

# In characters. A longer reply is never a bare option, so it is not reduced.
MAX_REPLY_CHARACTERS = 2_000
# Patterns combine, and a hostile reply could produce forms without end.
MAX_FORMS = 100

_QUOTES = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛‹›ʼ′´", "'"),
        **dict.fromkeys("“”„‟«»″「」『』《》〈〉", '"'),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        "。": ".",
    }
)
_INVISIBLE = re.compile(r"[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]")
# NFKC turns a raised, lowered or circled number into digits. Keep it apart from a digit beside it:
# `5²` is not 52, and `5¹` is a 5 with a footnote.
_BESIDE_DIGIT = re.compile(r"(?<=\d)(?=[²³¹⁰-\u209c①-⒛⓪⓵-⓾])|(?<=[²³¹⁰-\u209c①-⒛⓪⓵-⓾])(?=\d)")
# A hyphen or underscore between letters: models write "street-safety" for "street safety".
_HYPHENATED = re.compile(r"(?<=[^\W\d])[-_](?=[^\W\d])")
# Units with optional spaces around them: models write "10%" for "10 %".
# The lookbehind keeps the time linear in a long run of spaces.
_UNIT = re.compile(r"(?<!\s)\s*([%‰$€£¥])\s*")


def normalise_text(text: str) -> str:
    """Return a text in lower case with plain quotation marks, dashes and spaces."""
    # Line breaks and other symbols are kept. The width of characters is normalised as well.
    text = _BESIDE_DIGIT.sub(" ", text.translate(_QUOTES))
    text = unicodedata.normalize("NFKC", text).casefold()
    # `casefold` can undo the normal form, so NFKC is applied a second time.
    text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).translate(_QUOTES)
    # The lookbehind keeps the time linear in the number of spaces.
    text = re.sub(r"(?<!\s)\s*[\n\r\v\f\u2028\u2029]\s*", "\n", text)
    return re.sub(r"[^\S\n]+", " ", text).strip()


# The combining classes of marks that are no accents: they make another letter, vowel or tone, as in
# Japanese (バ and ハ), Hindi, Telugu, Thai, Lao and Tibetan.
_LETTER_MARKS = frozenset((0, 7, 8, 9, *range(84, 133)))


def strip_accents(text: str) -> str:
    """Return a text without accents, which models and humans often leave out."""
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize(
        "NFC", "".join(letter for letter in letters if _is_no_accent(letter))
    )


def _is_no_accent(letter: str) -> bool:
    return unicodedata.combining(letter) in _LETTER_MARKS


def comparison_key(form: str) -> str:
    """Return a key that is the same for texts such as `10 %` and `10%`."""
    return _UNIT.sub(r"\1", _HYPHENATED.sub(" ", form))


# Decoration. Each pattern matches a whole form. Its last group is the form without decoration.
_DECORATION_CHARACTERS = (
    r"(.*[^.!])(?:\.|!+)",
    r'"(.+)"',
    r"'(.+)'",
    # `~~` is missing here, because struck-out text is not an answer.
    r"(\*{1,3}|_{1,3}|`{1,3})(?=[^\s*_`])(.*[^\s*_`])\1",
    r"\((.+)\)|\[(.+)\]|\{(.+)\}",
    r"\$*\\(?:boxed|text)\{(.+)\}\$*",
    r"(?:[*•·→]|#{1,6})\s(.+)",
    # Check marks. A cross means the opposite, so it is kept.
    r"[✅✓✔☑]\s?(.+)",
    r"(.*[^\s])\s?[✅✓✔☑]",
    # `- 5` may mean minus five, and `> 5` may mean more than five.
    r"[->]\s([^\d\s$€£¥.,+-].*)",
)
# A listing number or letter at the start. `2. 4` may be a decimal number and `2 - 4` a range, so
# their first number is kept.
_WORD = r"(?:(?:option|choice|number|no\.|nr\.)\s?)"
_LABELLED = (
    rf"{_WORD}?[(\[](?:\d{{1,3}}|[a-z])[)\]][.:]?\s(.+)",
    rf"{_WORD}?#?(?:\d{{1,3}}|[a-z])\.?[)\]]:?\s(.+)",
    rf"(?:{_WORD}#?|#)(?:\d{{1,3}}|[a-z])(?:[.:]|\s-)\s(.+)",
    rf"(?:{_WORD}#?|#)(?:\d{{1,3}}|[a-z]),?\s([^\d\s].*)",
    r"\d{1,3}(?:[.:]|\s[-=])\s([^\d\s+-].*)",
    r"\d{1,3},\s([^\W\d].*)",
    r"[a-z](?:[.:]|\s[-=])\s(\d.*|\S.+)",
    r"(?:option|choice)\s(.+)",
    # The reply `b)` for the option B.
    r"([a-z]|\d{1,3})[)\]]",
)
# Markdown inside a form, as in "I vote for **Park** today".
_INLINE = re.compile(r"(?<![\w*_`])(\*{1,3}|_{1,3}|`)(?=[^\s*_`])(.*?[^\s*_`])\1(?![\w*_`])")

# Carrier phrases: a closed list of phrases that state one choice and nothing else. The last group
# is the choice. No phrase may negate, look back ("I chose"), rank ("my second choice") or state an
# intensity ("definitely"), because such words can distinguish two options.
_PHRASE_PREFIX = (
    r"(?:(?:ok|okay|sure|well|hm+|so|thus|therefore|honestly|personally|in the end|on balance|"
    r"overall|all things considered|for me|in my (?:opinion|view)|thank you|thanks|"
    r"after (?:some|much|careful) (?:thought|thinking|consideration|reflection)|"
    r"having thought about it|without (?:a|any) doubt|without hesitation|"
    r"if i (?:had|have) to (?:choose|pick|decide|vote)(?: one)?)"
    r"[,:;.!]?\s)*"
)
_WOULD = r"(?:'d|'ll| would| will| do| am going to|'m going to| want to| would like to|'d like to)?"
_STILL = r"(?: (?:still|now|therefore|rather))?"
_MY = (
    r"my (?:final |own |honest |first |top )?"
    r"(?:vote|choice|answer|pick|selection|preference|decision)"
)
_OPTION_PHRASE_PATTERNS = (
    rf"i{_WOULD}{_STILL} (?:choose|pick|select|prefer|vote for|vote|go for|go with|opt for|take|"
    r"decide on|decide for|settle on|stick with|stick to|stay with|support|favou?r):?\s(.+)",
    # Models answer like this if the prompt says "answer as this person would".
    r"(?:this|the) (?:person|participant) would (?:choose|pick|select|prefer|vote for):?\s(.+)",
    rf"i(?:'ve| have){_STILL} (?:chosen|picked|selected|opted for|decided on|decided for|"
    r"settled on):?\s(.+)",
    rf"i(?:'m| am){_STILL} (?:voting for|choosing|picking|selecting|going with|going for):?\s(.+)",
    rf"{_MY}(?: (?:is|would be|will be|is for|goes to|would go to|remains|stays))?:?\s(.+)",
    rf"here(?:'s| is) {_MY}:?\s(.+)",
    r"the (?:final |best |correct |right )?answer(?: to (?:this|the|your) question)? is:?\s(.+)",
    r"(?:(?:my |final |the )*(?:vote|choice|answer|decision|selection|response|option)|"
    r"(?:chosen|selected) option):\s?(.+)",
    rf"the (?:only )?(?:option|choice|one) (?:that )?i{_WOULD} (?:choose|pick|select|prefer|"
    r"vote for|support) is:?\s(.+)",
    r"the (?:option|choice)\s(.+)",
    rf"(.+) (?:is|would be|remains) {_MY}",
    r"(.+) (?:gets|has) my vote",
    r"(.+) it is",
    r"(?:it is|it's|it would be|i say|i'd say|i would say):?\s(.+)",
    r"(?:there is |there's )?no better (?:option|choice) than\s(.+)",
    # A prefix alone, as in "Well, Park".
    r"(?<=\s)(.+)",
    # A code block of several lines, which holds nothing else. The list of languages is closed: the
    # first line of a block may be an answer.
    r"```(?:json|markdown|md|plain|plaintext|text|txt)?\n((?:(?!```).)+?)\n?```",
)
# Further phrases around a number, from ratings and from games with contributions.
ABOUT = r"(?:about|around|roughly|approximately|~)\s?"
_NUMBER_CARRIERS = (
    rf"i{_WOULD} (?:give|contribute|offer|invest)(?: it)?\s(.+)",
    r"(?:score|rating|number|amount|value):\s?(.+)",
    rf"{ABOUT}(.+)",
    r"(.+) (?:tokens?|points?|coins?)",
)


_DECORATIONS = (*_DECORATION_CHARACTERS, *_LABELLED)
_OPTION_PHRASES = tuple(_PHRASE_PREFIX + pattern for pattern in _OPTION_PHRASE_PATTERNS)
_NUMBER_PHRASES = (*_OPTION_PHRASES, *(_PHRASE_PREFIX + pattern for pattern in _NUMBER_CARRIERS))


def undecorated_forms(text: str) -> list[str]:
    """Return versions of a text in lower case, with and without Markdown and list numbers."""
    return _expand_forms(text, _DECORATIONS)


def forms_in_phrases(text: str) -> list[str]:
    """Return versions of a text in lower case, with and without phrases around the answer."""
    # Markdown and list numbers are removed as well.
    return _expand_forms(text, (*_DECORATIONS, *_OPTION_PHRASES))


def label_forms(text: str) -> list[str]:
    """Return versions of a reply, with and without decoration and phrases such as "Option".

    If the reply names an option by number, one version is the bare number.
    """
    # A number before other text is kept, because `Option 1, 2` does not mean option 2.
    return _expand_forms(text, (*_DECORATION_CHARACTERS, *_OPTION_PHRASES))


def fold_digits(text: str) -> str:
    """Return a text in which numbers of other scripts, such as `٧٫٥`, have ASCII characters."""
    if text.isascii():
        return text
    # Between digits, these are the Arabic signs for decimals and thousands.
    text = re.sub(r"(?<=\d)٫(?=\d)", ".", re.sub(r"(?<=\d)٬(?=\d)", ",", text))
    return "".join(
        str(unicodedata.decimal(character)) if character.isdecimal() else character
        for character in text
    )


def number_forms(text: str) -> tuple[list[str], list[str]]:
    """Return two lists of versions of a reply. A version may be a bare number.

    The first list lacks decoration. The second list also lacks phrases such as "My answer is".
    """
    # In both lists, decoration such as quotation marks is removed.
    text = fold_digits(text)
    bare = _expand_forms(text, _DECORATION_CHARACTERS)
    return bare, _expand_forms(text, (*_DECORATION_CHARACTERS, *_NUMBER_PHRASES))


# Compiled when the first reply is read: it takes 10 ms, and many commands read none.
@cache
def _compile_patterns(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.DOTALL) for pattern in patterns)


def _expand_forms(text: str, patterns: tuple[str, ...]) -> list[str]:
    # The result is empty if there would be more than `MAX_FORMS` texts. For a long text, only the
    # normalised text is returned.
    whole_reply = normalise_text(text)
    forms = [whole_reply] if whole_reply else []
    if len(text) > MAX_REPLY_CHARACTERS:
        return forms
    compiled = _compile_patterns(patterns)
    # The list grows during the loop: each new form is reduced further.
    for form in forms:
        matches = (pattern.fullmatch(form) for pattern in compiled)
        inner_forms = [
            next(group for group in reversed(match.groups()) if group is not None)
            for match in matches
            if match
        ]
        for inner_form in (*inner_forms, _INLINE.sub(r"\2", form)):
            if inner_form.strip() and inner_form.strip() not in forms:
                forms.append(inner_form.strip())
        if len(forms) > MAX_FORMS:
            return []
    return forms


# In characters. The search for mentioned answers reads only this much of a reply, so that a model
# in a loop does not stall the run.
MAX_SEARCHED_CHARACTERS = 20_000
# Digits with optional commas between thousands. Other separators depend on the language. `0,500` is
# no number of thousands.
PLAIN_NUMBER = re.compile(
    r"[-+]?(?:(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
)
# The same inside a sentence. The bounds exclude parts of words, dates and longer numbers.
_ANY_NUMBER = re.compile(r"(?<![\w.,])" + PLAIN_NUMBER.pattern + r"(?!\w)")


def longest_first(options: Collection[str]) -> tuple[str, ...]:
    """Return options in the order in which `find_options` must search for them."""
    return tuple(sorted(options, key=lambda option: -len(comparison_key(normalise_text(option)))))


def find_options(reply: str, options: Collection[str]) -> tuple[frozenset[str], str]:
    """Return the options that a reply mentions anywhere, and the normalised rest of the reply.

    - `options`: in the order of `longest_first`.
    """
    text = comparison_key(normalise_text(reply[:MAX_SEARCHED_CHARACTERS]))
    mentioned = set()
    # Remove each match before searching for shorter options, which may be part of a longer one. The
    # NUL character keeps the words on both sides from forming a new match.
    for option in options:
        text, matches = _pattern_of(option).subn(" \0 ", text)
        if matches:
            mentioned.add(option)
    return frozenset(mentioned), text


@lru_cache(maxsize=4096)
def _pattern_of(option: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(comparison_key(normalise_text(option)))}(?!\w)")


def find_numbers(reply: str) -> list[float]:
    """Return the numbers that a reply mentions anywhere."""
    numbers = _ANY_NUMBER.findall(normalise_text(reply[:MAX_SEARCHED_CHARACTERS]))
    return [float(number.replace(",", "")) for number in numbers]


def visible_text(reply: str) -> str:
    """Return a reply without spaces at its ends, or "" if it has no visible character."""
    text = reply.strip()
    # This quick test decides most replies. All replies and options are examined.
    if text[:1].isascii() and text[:1].isprintable():
        return text
    return text if without_hidden(text).strip() else ""


def own_words(text: str, own_names: Collection[str], other_names: Collection[str]) -> str:
    """Return the part of a reply that the speaker says in their own name.

    A reply may go on as a script, with lines that begin with a name and a colon. The result is
    empty if all lines of a script are those of others.
    """
    # The speaker's words end before the first line of another speaker. They begin at the first line
    # that is under no name or under the speaker's name. A name that opens the reply and is the only
    # one in it addresses that person: "Ben: I hear you, but …"
    own = _with_first_names(own_names)
    others = _with_first_names(other_names) - own
    if not others:
        return text
    lines = [(0, 0, True)]
    lines += [
        (heading.start(), heading.end(), heading["other"] is None)
        for heading in _heading_pattern(frozenset(own), frozenset(others)).finditer(text)
    ]
    is_address = len(lines) == 2 and not text[: lines[1][0]].strip()
    if is_address or all(is_own for _, _, is_own in lines):
        return text
    begin = None
    ends = [start for start, _, _ in lines[1:]] + [len(text)]
    for (start, words_start, is_own), end in zip(lines, ends, strict=True):
        if begin is None:
            begin = start if is_own and text[words_start:end].strip() else None
        elif not is_own:
            return text[begin:start].strip()
    return "" if begin is None else text[begin:].strip()


def join_lines_of_others(
    text: str, own_names: Collection[str], other_names: Collection[str]
) -> str:
    """Return a text in which no later line begins with the name of another speaker and a colon.

    Such a line is joined to the line before it, so that all words stay those of the speaker.
    """
    own = _with_first_names(own_names)
    others = _with_first_names(other_names) - own
    if not others:
        return text
    joined, begin = "", 0
    for heading in _heading_pattern(frozenset(own), frozenset(others)).finditer(text):
        before = text[begin : heading.start()].rstrip()
        if heading["other"] is not None and (joined or before):
            joined, begin = f"{joined}{before} ", heading.start()
            begin += len(text[begin:]) - len(text[begin:].lstrip())
    return joined + text[begin:]


def without_own_heading(text: str, own_names: Collection[str]) -> str:
    """Return a reply without the speaker's name and the colon at its beginning."""
    own = frozenset(_with_first_names(own_names))
    heading = _heading_pattern(own, frozenset()).match(text) if own else None
    # Markdown of the name may end after the colon: "**Emma:** I hear you".
    return re.sub(r"^\**\s*", "", text[heading.end() :]) if heading else text


def _with_first_names(names: Collection[str]) -> set[str]:
    return {part.casefold() for name in names for part in (name, name.partition(" ")[0]) if part}


@lru_cache(maxsize=256)
def _heading_pattern(own: frozenset[str], others: frozenset[str]) -> re.Pattern[str]:
    groups = {"other": others, "own": own}
    names = "|".join(
        f"(?P<{group}>{'|'.join(map(re.escape, sorted(names)))})"
        for group, names in groups.items()
        if names
    )
    return re.compile(rf"(?im)^(?:[^\S\n]|\*)*(?:{names})[\s*]*(?:\([^)\n]*\)[\s*]*)?:")


# Refusals to vote at all. "I will not choose 2 or 3" and "I won't vote for Park" state a view on
# options and do not match.
_NO_VOTE = (
    r"(?:vote|choose)\b(?=\W*(?:$|[.,;!?\n])|\W+(?:for )?(?:between|among|from|any|either|one|an|"
    r"in|on|at|or|because|here|now|today|this)\b)"
)
# English only. Bounded gaps such as `[^.]{0,60}` keep a match inside one sentence.
_REFUSAL = re.compile(
    r"\b(?:i(?:'m| am) (?:sorry|afraid|unable|not able|not comfortable)[^.]{0,60}"
    r"(?:can(?:'t|not)|unable|not able|won't|decline|not comfortable)"
    r"|i (?:can(?:'t|not)|won't|must decline|prefer not|would rather not|decline|am unable)\W+"
    r"(?:\w+\W+){0,3}?(?:help|assist|answer|take part|participate|respond|comply|do that|"
    rf"say|provide|engage|role.?play|request|question|voting|{_NO_VOTE})"
    r"|i (?:refuse|decline)\s*(?:$|[.,;!:\n])"
    r"|i (?:refuse|(?:don't|do not) (?:want|wish)|will not|am not (?:able|willing|going)) ?"
    rf"(?:to )?(?:(?:answer|take part|participate)\b|{_NO_VOTE})"
    r"|i(?:'d|'ll| would| will| must| have to| choose to)?(?: rather)? abstain\W*"
    r"(?:$|from (?:voting|choosing|this|the vote))"
    rf"|as an ai\b|i(?:'d| would) rather not (?:say|answer|{_NO_VOTE})|not something i can)"
    r"|^\W*(?:abstain|abstention|no vote)\W*$",
    re.IGNORECASE,
)


# In characters. A longer text may mention a refusal without being one.
MAX_REFUSAL_CHARACTERS = 300
# Refusals to answer at all, as whole clauses. Unlike `_REFUSAL`, they do not match a refusal of
# something else: "I can't take part in a pub crawl", "I cannot say no to sushi".
_POLITELY = r"(?:(?:must|have to|respectfully|politely|kindly) )*"
_UNWILLING = (
    rf"\bi(?: (?:can(?:'t|not)|won't|will not|{_POLITELY}(?:decline|refuse) to|"
    r"choose not to|(?:would )?prefer not to|would rather not|(?:don't|do not) (?:want|wish) to)"
    r"|'d rather not|'d prefer not to"
    r"|(?: am|'m) (?:unable to|unwilling to|not (?:able|willing|going) to|choosing not to"
    rf"|{_POLITELY}(?:declining|refusing) to)) "
)
_ASKED = (
    r"(?:votes?|voting|questions?|requests?|tasks?|ballots?|surveys?|polls?|study|exercises?|"
    r"texts?|role-?plays?|elections?|decisions?|discussions?|simulation)"
)
_ABOUT = (
    r"(?: (?:in|on|to|with|for|from|between|among|about))?(?: (?:this|that|the|your|these|those|"
    rf"any|such|it|either|them|of|one|an?|all|options?|{_ASKED}))*"
)
_TO_ANSWER = (
    r"(?:(?:answer|respond|reply|comply|say|assist|help(?! it)|code|classify)\b"
    # "I won't vote for that" refuses an option.
    rf"|(?:vote|choose)\b(?! (?:for )?(?:that|it|them|this|these|those)\b(?! {_ASKED}))"
    r"|(?:provide|give|cast|share) (?:an?|any|my|the|this|that) (?:\w+ )?"
    r"(?:answer|vote|ballot|opinion|response|preference)s?\b)"
    rf"{_ABOUT}"
)
# Without a name of what is asked, these verbs may refuse an option.
_TO_ACT = r"(?:take part|participate|engage|do|role-?play)"
_AT_ONCE = (
    r"\bi(?:'d|'ll| would| will| must| have to| choose to)?"
    r"(?: (?:rather|respectfully|politely|kindly))? (?:refuse|decline|abstain)"
    rf"(?: from {_ASKED})?"
)
_CLAUSE_END = (
    r"(?: (?:now|today|here|please|at all))*\s*"
    r"(?=$|[^\w\s'-]|\n|\b(?:because|as|since|and|or|thank)\b)"
    # Here an answer follows in spite of the words: "I'd rather not say, but here is my vote".
    r"(?!,? but (?:here|as|since|my|i'll|i will|if i (?:must|have to)))"
)
_SURE_REFUSAL = (
    rf"(?:{_UNWILLING}(?:{_TO_ANSWER}|{_TO_ACT}{_ABOUT} {_ASKED})|{_AT_ONCE}){_CLAUSE_END}"
)
_REFUSES_TO_ANSWER = re.compile(
    rf"{_SURE_REFUSAL}|{_UNWILLING}{_TO_ACT}{_ABOUT}{_CLAUSE_END}", re.IGNORECASE
)
_ONLY_REFUSAL = re.compile(
    r"\W*(?:(?:i(?:'m| am) (?:sorry|afraid)|sorry|no|thank you|thanks|but|that)(?:\W+|$))*"
    rf"(?P<refusal>as an ai\b.*|{_SURE_REFUSAL}\W*(?:(?:because i(?:'m| am)|as) an ai\b.*)?)?",
    re.IGNORECASE,
)
# Refusals that are a whole sentence. In a longer sentence the same words refuse something else: "I
# cannot rate it higher than 3".
_PLEASANTRIES = (
    r"\W*(?:(?:i(?:'m| am) (?:sorry|afraid)|sorry|apologies|no|thank you|thanks|but|that|actually|"
    r"honestly|unfortunately|as an ai(?: language model| model)?)\W+)*"
)
_RATED = (
    r"(?: (?:this|that|it|the|these|those|them|any|either|your|such|all|of|for|on|to|with|about|"
    r"proposals?|plans?|items?|options?|ideas?|concepts?|products?|motions?|statements?|topics?|"
    rf"matters?|issues?|people|persons?|{_ASKED}))*"
)
_TO_RATE = (
    r"(?:(?:(?P<judging>rate|score|rank|grade|evaluate|assess|judge)|answer|comment)\b"
    r"|(?:give|provide|state|share|offer|assign) (?:(?:you|it|this|that|them) )?"
    r"(?:an?|any|my|the|this|that) (?:(?:numerical|numeric|single|specific|definite|exact) )?"
    r"(?:ratings?|scores?|rankings?|numbers?|values?|estimates?|assessments?|evaluations?|"
    r"judge?ments?|answers?|opinions?|preferences?|choices?|stance|position|comments?)\b"
    rf"){_RATED}"
)
_UNCOMFORTABLE = (
    r"i(?: (?:don't|do not) feel|(?: am|'m) not) comfortable (?:with )?(?:rating|scoring|ranking|"
    r"grading|evaluating|assessing|judging|answering|commenting|voting|choosing|saying)\b"
    rf"{_RATED}"
)
_REFUSING_SENTENCE = re.compile(
    rf"{_PLEASANTRIES}(?P<refusal>{_UNWILLING}{_TO_RATE}|{_UNCOMFORTABLE})"
    r"(?: (?:now|today|here|please|at all|at this time)|,? sorry)*"
    r"(?:,? (?:(?:(?:because|since) i(?:'m| am)|as) an ai\b[^:]*|"
    r"(?P<reason>(?:because|since)\b[^:]*))|[^\w:]*)",
    re.IGNORECASE,
)
# The same in other languages, without accents. Each pattern is a whole sentence.
_ELSEWHERE = r"(?: (?:hier|ici|aqui|qui|hoy|oggi|heute|nu|agora))?"
_REFUSALS_BY_LANGUAGE = {
    "de": (
        r"(?:(?:diese|die|ihre|deine) fragen? |dazu |darauf |hierzu |das )?(?:ich )?"
        r"(?:mochte|will|kann|werde|darf)(?: ich)? "
        r"(?:(?:diese|die|ihre|deine) fragen? |dazu |darauf |hierzu |das |hier |lieber |leider )*"
        r"(?:nicht|nichts|keine (?:antwort|angaben?|auskunft|bewertung|stimme|meinung)) "
        r"(?:auf (?:diese|die|ihre) frage )?(?:beantworten|antworten|sagen|abstimmen|bewerten|"
        r"angeben|geben|machen|abgeben|haben|kommentieren|mich (?:dazu )?aussern)"
        r"|ich (?:weigere mich|lehne es ab)(?:,? (?:(?:diese|die|ihre) fragen? )?"
        r"(?:zu (?:beantworten|antworten|bewerten)|abzustimmen))"
        r"|ich enthalte mich(?: der stimme)?"
    ),
    "es": (
        r"(?:yo )?(?:prefiero no|preferiria no|no quiero|no puedo|no deseo|no voy a|me niego a) "
        r"(?:responder|contestar|votar|opinar|decirlo)(?: a)?(?: (?:esta|esa|la|su) pregunta)?"
        r"|me abstengo"
    ),
    "fr": (
        r"je (?:prefere(?:rais)? ne pas|ne (?:souhaite|veux|peux|desire|vais) pas|refuse de) "
        r"(?:y )?(?:repondre|voter|me prononcer|le dire|noter|evaluer|donner (?:de|mon|ma|une?) "
        r"(?:reponse|note|avis|opinion))(?: a (?:cette|la|votre) question)?"
        r"|je ne voterai pas|je m'abstiens"
    ),
    "it": (
        r"(?:preferisco non|preferirei non|non voglio|non posso|non desidero|mi rifiuto di) "
        r"(?:rispondere|votare|esprimermi|dirlo)(?: (?:a questa|alla|alla sua) domanda)?"
        r"|mi astengo"
    ),
    "nl": (
        r"ik (?:wil|kan|zal|ga)(?: deze vraag| hier| daar)?(?: liever)? (?:niet|geen antwoord) "
        r"(?:op deze vraag )?(?:antwoorden|beantwoorden|stemmen|geven|zeggen)"
        r"|ik geef (?:hier )?(?:liever )?geen antwoord|ik weiger te (?:antwoorden|stemmen)"
        r"|ik onthoud me"
    ),
    "pt": (
        r"(?:eu )?(?:prefiro nao|nao quero|nao posso|nao desejo|nao vou|me recuso a|recuso-me a) "
        r"(?:responder|votar|opinar|dizer)(?: a)?(?: (?:esta|essa|a|sua) pergunta)?"
        r"|(?:eu )?me abstenho|abstenho-me"
    ),
}
_REFUSING_SENTENCE_ELSEWHERE = re.compile(
    r"\W*(?:(?:(?:es )?tut mir (?:sehr )?leid|entschuldigung|leider|nein|aber|als (?:ki|"
    r"sprachmodell)|(?:je suis )?desolee?|pardon|mais|en tant qu'ia|lo siento|pero|"
    r"como (?:una )?ia|no|non|mi dispiace|come (?:una )?ia|sorry|"
    r"helaas|nee|maar|als ai|desculpe|lamento|mas|nao)\W+)*"
    rf"(?:{'|'.join(_REFUSALS_BY_LANGUAGE.values())}){_ELSEWHERE}"
    r"(?:,? (?:danke|merci|gracias|grazie|bedankt|obrigad[oa]))?[^\w:]*"
)
# These refuse to answer only if a text has no other words. "Without the park? I'd rather not."
_BARE_REFUSAL = re.compile(
    rf"{_PLEASANTRIES}(?:i(?:'d| would) rather not|i(?:'d| would)? prefer not to|"
    r"i (?:don't|do not) (?:want|wish) to|(?:i have )?no comment|keine angaben?|kein kommentar|"
    r"sans commentaire|sin comentarios|nessun commento|geen commentaar|sem comentarios)[^\w:]*",
    re.IGNORECASE,
)
# The speaker answers in spite of the words before: "I cannot rate this. Still, here is my guess."
_ANSWERS_ALL_THE_SAME = re.compile(
    r"\b(?:but|however|still|nevertheless|nonetheless|that said|even so|anyway|if (?:i|you)|"
    r"(?:here|this|below|following) (?:is|are)|here's|forced|my (?:best |own )?(?:answer|vote|"
    r"rating|score|choice|guess|estimate)|aber|trotzdem|dennoch|hier ist|meine (?:antwort|stimme|"
    r"wahl)|mais|voici|pero|aqui|ecco|tuttavia|maar|toch|hier is|mas|contudo)\b",
    re.IGNORECASE,
)
# The number of sentences at either end of a text that may refuse to answer.
MAX_END_SENTENCES = 3


def _split_sentences(text: str) -> list[str]:
    sentences = re.split(r"(?<=[.!?;])\s+|\n+", text.replace("’", "'"))
    return [sentence for sentence in sentences if sentence.strip()]


def _has_refusing_sentence(text: str) -> bool:
    sentences = _split_sentences(text)
    for i, sentence in enumerate(sentences):
        is_at_end = min(i, len(sentences) - 1 - i) < MAX_END_SENTENCES
        if not is_at_end:
            continue
        refusal = _REFUSING_SENTENCE.fullmatch(sentence)
        if refusal is not None or _refuses_elsewhere(sentence):
            reason = refusal["reason"] if refusal else None
            following = [reason or "", *sentences[i + 1 :]]
            return not any(map(_ANSWERS_ALL_THE_SAME.search, following))
    return False


def _refuses_elsewhere(sentence: str) -> bool:
    folded = strip_accents(sentence[:MAX_REFUSAL_CHARACTERS].casefold())
    return _REFUSING_SENTENCE_ELSEWHERE.fullmatch(folded) is not None


def is_bare_refusal(text: str) -> bool:
    """Return whether a text has no other words than a refusal such as "I'd rather not."

    Beside an answer, the same words refuse something else.
    """
    sentences = _split_sentences(text[: MAX_REFUSAL_CHARACTERS + 1])
    return bool(sentences) and all(map(_BARE_REFUSAL.fullmatch, sentences))


def looks_like_refusal(text: str) -> bool:
    """Return whether a text refuses to answer."""
    # Only its beginning counts.
    beginning = text.replace("’", "'")[:MAX_REFUSAL_CHARACTERS]
    if _REFUSAL.search(beginning):
        return True
    return any(map(_refuses_elsewhere, _split_sentences(beginning)))


def refuses_at_its_ends(text: str) -> bool:
    """Return whether a text refuses to answer at its beginning or at its end.

    A text that refuses only an option or another thing does not.
    """
    ends = text[:MAX_REFUSAL_CHARACTERS], text[-MAX_REFUSAL_CHARACTERS:]
    is_refused = any(_REFUSES_TO_ANSWER.search(end.replace("’", "'")) for end in ends)
    return is_refused or _has_refusing_sentence(text)


def _judges_by_reason(refusal: re.Match[str] | None) -> bool:
    groups = refusal.groupdict() if refusal else {}
    return bool(groups.get("judging") and groups.get("reason"))


def is_only_refusal(text: str, *, may_state_reason: bool = False) -> bool:
    """Return whether a text is nothing but a refusal to answer.

    - `may_state_reason`: whether "I cannot judge the plan because it names no costs" is one. Where
      a text may be a point or an objection, its reason is one.
    """
    sentences = re.split(r"[.!?;\n]+", text.replace("’", "'"))
    refusals = [
        _ONLY_REFUSAL.fullmatch(sentence) or _REFUSING_SENTENCE.fullmatch(sentence)
        for sentence in sentences
    ]
    if not may_state_reason and any(map(_judges_by_reason, refusals)):
        return False
    return _is_refusal_elsewhere(text) or (
        all(refusals) and any(refusal["refusal"] for refusal in refusals if refusal)
    )


def _is_refusal_elsewhere(text: str) -> bool:
    sentences = _split_sentences(text.replace("’", "'"))
    return bool(sentences) and all(map(_refuses_elsewhere, sentences))
