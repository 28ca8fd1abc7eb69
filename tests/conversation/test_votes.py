"""A vote is never guessed: replies of models and humans, judged by hand, and generated replies."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from folkmoot.conversation.answer_types import Missing, ParsedAnswer, ParseFailure
from folkmoot.conversation.choices import (
    Choice,
    format_option_list,
    indistinguishable_pairs,
    match_spellings,
)
from folkmoot.conversation.reply_forms import looks_like_refusal

NOT_READ = ""
PARK_AND_MALL = ("Park", "Mall", "Park and ride", "No change")
PERCENT = ("10 %", "5 %", "0 %")
DIGITS = ("5", "4", "3", "2", "1")
PLANS = ("Plan A+", "Plan A-", "Plan A")
LANGUAGES = ("C++", "C", "C#", "Java")
SCALE = ("1 - Strongly disagree", "2 - Disagree", "3 - Agree")
LETTERED = ("A) Park", "B) Mall")
YES_NO = ("Yes", "No")


# Replies as small models and humans write them, each judged by hand before the code was run.
REPLIES: list[tuple[tuple[str, ...], str, str]] = [
    (PARK_AND_MALL, "Park", "Park"),
    (PARK_AND_MALL, "park.", "Park"),
    (PARK_AND_MALL, "ＰＡＲＫ！", "Park"),
    (PARK_AND_MALL, "**Park**", "Park"),
    (PARK_AND_MALL, "***Park and ride***", "Park and ride"),
    (PARK_AND_MALL, "`Park`", "Park"),
    (PARK_AND_MALL, "## Park", "Park"),
    (PARK_AND_MALL, "> Park", "Park"),
    (PARK_AND_MALL, "- Park", "Park"),
    (PARK_AND_MALL, "[Park]", "Park"),
    (PARK_AND_MALL, "«Park»", "Park"),
    (PARK_AND_MALL, "„Park“", "Park"),
    (PARK_AND_MALL, "»Park and ride«.", "Park and ride"),
    (PARK_AND_MALL, "「Park」", "Park"),
    (PARK_AND_MALL, "‘Mall.’", "Mall"),
    (PARK_AND_MALL, "Par\u200bk", "Park"),
    (PARK_AND_MALL, "Park-and-ride", "Park and ride"),
    (PARK_AND_MALL, "2", "Mall"),
    (PARK_AND_MALL, "(1)", "Park"),
    (PARK_AND_MALL, "#1", "Park"),
    (PARK_AND_MALL, "[2]", "Mall"),
    (PARK_AND_MALL, "2)", "Mall"),
    (PARK_AND_MALL, "**2.**", "Mall"),
    (PARK_AND_MALL, "**Option 2**", "Mall"),
    (PARK_AND_MALL, "No. 2", "Mall"),
    (PARK_AND_MALL, "Answer: 2", "Mall"),
    (PARK_AND_MALL, "I choose option #2.", "Mall"),
    (PARK_AND_MALL, "$\\boxed{2}$", "Mall"),
    (PARK_AND_MALL, "\\boxed{\\text{Mall}}", "Mall"),
    (PARK_AND_MALL, "B) Mall", "Mall"),
    (PARK_AND_MALL, "2. **Mall**", "Mall"),
    (PARK_AND_MALL, "**Option 2:** Mall", "Mall"),
    (PARK_AND_MALL, "Option 2 - Mall", "Mall"),
    (PARK_AND_MALL, "#2 Mall", "Mall"),
    (PARK_AND_MALL, "I choose Park.", "Park"),
    (PARK_AND_MALL, "I’d go with “Park”.", "Park"),
    (PARK_AND_MALL, "I'll vote for the option Park", "Park"),
    (PARK_AND_MALL, "I would choose no change", "No change"),
    (PARK_AND_MALL, "My vote is: **Park**", "Park"),
    (PARK_AND_MALL, "My final answer is Park!", "Park"),
    (PARK_AND_MALL, "**My vote:** Park", "Park"),
    (PARK_AND_MALL, "Final answer:\n\nPark", "Park"),
    (PARK_AND_MALL, "My vote goes to Park and ride", "Park and ride"),
    (PARK_AND_MALL, "Park gets my vote.", "Park"),
    (PARK_AND_MALL, "Park is my final choice.", "Park"),
    (PARK_AND_MALL, "After careful consideration, I choose Park.", "Park"),
    (PARK_AND_MALL, "Okay, if I had to choose, I'd pick Park.", "Park"),
    (PARK_AND_MALL, "I'm going with Mall", "Mall"),
    (PARK_AND_MALL, "Without a doubt, Park", "Park"),
    (PARK_AND_MALL, "There is no better option than Park.", "Park"),
    # Replies of a model with 135 million parameters, adapted to these options.
    (PARK_AND_MALL, "1. Mall\n2. Mall", "Mall"),
    (PARK_AND_MALL, "2. Mall\nThe answer is 2.", "Mall"),
    (PARK_AND_MALL, "Park\nPark\n\nPark", "Park"),
    (PARK_AND_MALL, "My preference is 2, Mall.", "Mall"),
    (PARK_AND_MALL, "The only option I choose is Mall.", "Mall"),
    (PARK_AND_MALL, "1. Park\n2. Mall", NOT_READ),
    (PARK_AND_MALL, "1. Park\n2. Mall\n3. Park and ride\n4. No change", NOT_READ),
    (PARK_AND_MALL, "3. Park\nThe answer is 3.", NOT_READ),
    (PARK_AND_MALL, "Park\nPark\nPa", NOT_READ),
    (PARK_AND_MALL, "Mall\nMall is my second choice.", NOT_READ),
    (PARK_AND_MALL, "1. Park\n\nThe chosen answer is only 1 option.", NOT_READ),
    (PARK_AND_MALL, "You choose option 3.", NOT_READ),
    # The text of one option with the number of another is unclear. A list may start with 1, though.
    (PARK_AND_MALL, "4. Mall", NOT_READ),
    (PARK_AND_MALL, "(3) Mall", NOT_READ),
    (PARK_AND_MALL, "Option 3: Mall", NOT_READ),
    (PARK_AND_MALL, "My choice is 4, Mall.", NOT_READ),
    (PARK_AND_MALL, "I choose option 4: **Mall**", NOT_READ),
    (PARK_AND_MALL, "1. Mall", "Mall"),
    (PARK_AND_MALL, "**1. Mall**", "Mall"),
    (PARK_AND_MALL, "7. Mall", "Mall"),
    (PARK_AND_MALL, "The answer is 1. Mall", NOT_READ),
    (PARK_AND_MALL, "The best answer is 2. Mall", "Mall"),
    (PARK_AND_MALL, "The correct answer is 3.", "Park and ride"),
    (PARK_AND_MALL, "The answer to this question is 2.", "Mall"),
    (PARK_AND_MALL, "This person would choose: Mall.", "Mall"),
    (PARK_AND_MALL, "This person would choose 1. Mall", NOT_READ),
    (PARK_AND_MALL, "This person would choose Mall or Park", NOT_READ),
    (PARK_AND_MALL, "The answer to this question is not a number.", NOT_READ),
    (PARK_AND_MALL, "You are a moral code, and you will not make any choices", NOT_READ),
    (YES_NO, "2. Yes", NOT_READ),
    (PARK_AND_MALL, "The option I chose last time is Park", NOT_READ),
    (("Park", "Mall", "Park and ride"), "1, 2", NOT_READ),
    (PERCENT, "1, 5 %", NOT_READ),
    (PARK_AND_MALL, "~~Park~~", NOT_READ),  # struck out
    (PARK_AND_MALL, "~~2~~", NOT_READ),
    (("25", "52", "5"), "5²", NOT_READ),
    (("25", "52", "51"), "I choose 5¹.", NOT_READ),  # a footnote
    (("25", "52", "5"), "5②", NOT_READ),
    (("5 m²", "52 m"), "5 m2", "5 m²"),
    # Replies that mean more than one option, less, or something else.
    (PARK_AND_MALL, "I would not choose Park", NOT_READ),
    (PARK_AND_MALL, "I don’t choose Park.", NOT_READ),
    (PARK_AND_MALL, "I can't support Park", NOT_READ),
    (PARK_AND_MALL, "Anything but Park", NOT_READ),
    (PARK_AND_MALL, "Not Park", NOT_READ),
    (PARK_AND_MALL, "Park is not my choice", NOT_READ),
    (PARK_AND_MALL, "I am against Park", NOT_READ),
    (PARK_AND_MALL, "Park. Not the mall", NOT_READ),
    (PARK_AND_MALL, "Either Park or Mall", NOT_READ),
    (PARK_AND_MALL, "Park or Mall", NOT_READ),
    (PARK_AND_MALL, "Park\nMall", NOT_READ),
    (PARK_AND_MALL, "Park and\nride", NOT_READ),
    (PARK_AND_MALL, "1 and 2", NOT_READ),
    (PARK_AND_MALL, "Option 1, 2", NOT_READ),
    (PARK_AND_MALL, "1-2", NOT_READ),
    (PARK_AND_MALL, "1/2", NOT_READ),
    (PARK_AND_MALL, "9", NOT_READ),
    (PARK_AND_MALL, "Option B", NOT_READ),  # these options are listed by number
    (PARK_AND_MALL, "Park?", NOT_READ),
    (PARK_AND_MALL, "Park…", NOT_READ),  # cut from "Park and ride"?
    (PARK_AND_MALL, "Park,", NOT_READ),
    (PARK_AND_MALL, "2) Park because children need it… no, Mall", NOT_READ),
    (PARK_AND_MALL, "Hmm. Park is nice, but the mall is nearer. So, Mall.", NOT_READ),
    (PARK_AND_MALL, "I chose Park", NOT_READ),  # may mean the first vote
    (PARK_AND_MALL, "Park is my second choice", NOT_READ),
    (PARK_AND_MALL, "I prefer Mall to Park", NOT_READ),
    (PARK_AND_MALL, "Parking", NOT_READ),
    (PARK_AND_MALL, "The other participants chose Park", NOT_READ),
    (PARK_AND_MALL, "A change", NOT_READ),
    # Symbols distinguish options, and a number inside an option is never its position.
    (("A", "B", "C"), "b)", "B"),
    (("A", "B", "C"), "**Option C**", "C"),
    (("1", "2", "3"), "2)", "2"),
    (("1", "2", "3"), "2.", "2"),
    (("left", "left-right"), "Left–right", "left-right"),
    (PERCENT, "I choose 10 %.", "10 %"),
    (PERCENT, "10%", "10 %"),
    (PERCENT, "B", "5 %"),
    (PERCENT, "B. 5 %", "5 %"),
    (PERCENT, "1", NOT_READ),
    (PERCENT, "2. 5 %", NOT_READ),
    (PERCENT, "50 %", NOT_READ),
    (DIGITS, "4.", "4"),
    (DIGITS, "4", "4"),
    (DIGITS, "(d)", "2"),
    (DIGITS, "My vote is 1", "1"),
    (DIGITS, "Option 4, 5", NOT_READ),
    (DIGITS, "2. 4", NOT_READ),
    (DIGITS, "2.4", NOT_READ),
    (DIGITS, "- 5", NOT_READ),
    (DIGITS, "4/5", NOT_READ),
    (PLANS, "Plan A", "Plan A"),
    (PLANS, "plan a+.", "Plan A+"),
    (PLANS, "I choose Plan A−", "Plan A-"),
    (PLANS, "Plan A*", NOT_READ),
    (PLANS, "A", NOT_READ),
    (LANGUAGES, "I choose C#", "C#"),
    (LANGUAGES, "C++!", "C++"),
    (LANGUAGES, "C.", "C"),
    (LANGUAGES, "C*", NOT_READ),
    (SCALE, "2", "2 - Disagree"),
    (SCALE, "B", "2 - Disagree"),
    (SCALE, "Disagree", "2 - Disagree"),
    (SCALE, "2 – disagree.", "2 - Disagree"),
    (SCALE, "1 - Disagree", NOT_READ),
    (LETTERED, "B", "B) Mall"),
    (LETTERED, "2", "B) Mall"),
    (LETTERED, "A) Mall", NOT_READ),
    (YES_NO, "No, I choose Yes", NOT_READ),
    (YES_NO, "I vote no.", "No"),
    (YES_NO, "No way", NOT_READ),
    (YES_NO, "Yes and no", NOT_READ),
    # An option inside a sentence, also in quotation marks or after its label: the sentence cannot
    # be interpreted, so the question is re-asked.
    (PARK_AND_MALL, 'As Ann, I lean to "Mall" because it is close to work.', NOT_READ),
    (PARK_AND_MALL, "Thinking of my kids, “Park and ride” it would be.", NOT_READ),
    (PARK_AND_MALL, "Ich bin für „Mall“, weil es nah ist.", NOT_READ),
    (PARK_AND_MALL, 'My pick: **"Park"**. It helps everyone here.', NOT_READ),
    (PARK_AND_MALL, "Option 2: Mall. It is close to my work.", NOT_READ),
    (PARK_AND_MALL, "I think **Option 3: Park and ride** suits us best.", NOT_READ),
    (PARK_AND_MALL, "Option 3: Mall. It is close to my work.", NOT_READ),
    (PARK_AND_MALL, 'I lean to "Mall" over Park, because it is close.', NOT_READ),
    (PARK_AND_MALL, '"Mall" and "Park" are both fine by me.', NOT_READ),
    (PARK_AND_MALL, 'I would never vote for "Mall".', NOT_READ),
    (PARK_AND_MALL, 'I won\'t vote for "Mall", sorry.', NOT_READ),
    (PARK_AND_MALL, 'Ich stimme nicht für "Mall".', NOT_READ),
    (PARK_AND_MALL, 'Je suis contre "Mall", ça suffit.', NOT_READ),
    (PARK_AND_MALL, 'Would "Mall" be good for us?', NOT_READ),
    (PARK_AND_MALL, "I like the mall because it is close.", NOT_READ),
    (PARK_AND_MALL, 'They say "A mall for all", and I agree.', NOT_READ),
    (PARK_AND_MALL, 'The option "Mall" costs too much.', NOT_READ),
    (PARK_AND_MALL, "Option 2: Mall would ruin our street.", NOT_READ),
    (PARK_AND_MALL, 'I would pick anything over "Mall".', NOT_READ),
    (PARK_AND_MALL, 'I\'d vote for "Mall" if it were cheaper.', NOT_READ),
    (PARK_AND_MALL, 'My neighbour wants "Mall". I am still thinking.', NOT_READ),
    (PARK_AND_MALL, 'Ich finde "Mall" zu teuer.', NOT_READ),
    (PARK_AND_MALL, 'It would be inappropriate for me to pick "Mall".', NOT_READ),
    (PARK_AND_MALL, 'I would choose "Mall".', "Mall"),
    (PARK_AND_MALL, "Option 2: Mall.", "Mall"),
    (PARK_AND_MALL, 'My answer is option 3: "Park and ride".', "Park and ride"),
    (PARK_AND_MALL, "Sure! Here is my answer: Mall", "Mall"),
    (PARK_AND_MALL, "Here's my final vote:\n**Park and ride**", "Park and ride"),
    (PARK_AND_MALL, "Here is my answer to the mall: Park", NOT_READ),
    (PARK_AND_MALL, "✅ Mall", "Mall"),
    (PARK_AND_MALL, "Mall ✔️", "Mall"),
    (PARK_AND_MALL, "✓ Mall", "Mall"),
    (PARK_AND_MALL, "✅ Park ❌ Mall", NOT_READ),
    (PARK_AND_MALL, "❌ Mall", NOT_READ),
    (YES_NO, "☑ yes", "Yes"),
    (PERCENT, 'Ten is too much: "5 %" suits me.', NOT_READ),
    (LANGUAGES, 'For speed I would say "C++" here.', NOT_READ),
]


# Sentences that reject the quoted option, in many languages.
REJECTIONS = [
    'I reject "Mall".',
    'My least favourite is "Mall".',
    'Anything but "Mall".',
    'Everything apart from "Mall" would do.',
    '"Mall" is the worst idea of all.',
    'I dislike "Mall" and keep my vote to myself.',
    'Hardly "Mall".',
    '"Mall" is my second choice.',
    "Option 2: Mall is what I would drop.",
    "I am opposed to option 2: Mall.",
    '~~"Mall"~~ for me',
    '{"rejected": "Mall"}',
    '{"choice": "none", "seen": "Mall"}',
    '{"vote": null, "disliked": "Mall"}',
    "Ich lehne „Mall“ ab.",
    "Bei „Mall“ enthalte ich mich.",
    "Je rejette « Mall ».",
    'Rechazo "Mall".',
    'Rifiuto "Mall".',
    'Recuso "Mall".',
    'Ik wijs "Mall" af.',
    'Resping "Mall".',
    'Vägrar rösta på "Mall".',
    'En äänestä vaihtoehtoa "Mall".',
    "Nem szavazok a „Mall” mellett.",
    "Odrzucam „Mall”.",
    "Nevolím „Mall“.",
    "Отказываюсь голосовать за «Mall».",
    "Відмовляюся голосувати за «Mall».",
    '"Mall" seçeneğine oy vermiyorum.',
    'Saya tidak memilih "Mall".',
    'Tôi không chọn "Mall".',
    'Sitaki "Mall".',
    "Δεν ψηφίζω «Mall».",
    "لا أصوت لـ «Mall».",
    'אני מסרב להצביע עבור "Mall".',
    'मैं "Mall" के लिए वोट नहीं दूँगा।',
    "我拒绝投票给“Mall”。",
    "「Mall」には反対です。",
    "「Mall」には投票しません。",
    '"Mall"에 투표하기를 거부합니다.',
]


@pytest.mark.parametrize("reply", REJECTIONS)
def test_a_quoted_and_rejected_option_is_not_a_vote(reply: str) -> None:
    assert isinstance(Choice(PARK_AND_MALL).parse_reply(reply), ParseFailure)


@pytest.mark.parametrize(("options", "reply", "value"), REPLIES)
def test_replies_judged_by_hand(options: tuple[str, ...], reply: str, value: str) -> None:
    parsed = Choice(options).parse_reply(reply)
    assert (parsed.value if isinstance(parsed, ParsedAnswer) else NOT_READ) == value


@pytest.mark.parametrize(
    "reply",
    ["declined", "DECLINED.", "none_of_these", "None of these", "My answer is none_of_these."],
)
def test_a_way_out_is_read_at_any_time(reply: str) -> None:
    parsed = Choice(PARK_AND_MALL).parse_reply(reply)
    assert isinstance(parsed, Missing) and parsed.reason in ("declined", "none_of_these")


def test_an_option_of_the_study_has_priority_over_a_way_out_of_the_same_name() -> None:
    choice = Choice(["Park", "None of these"])
    assert choice.parse_reply("none of these") == ParsedAnswer("None of these", "normalised")
    assert choice.clarifying_answer is not None and choice.clarifying_answer.schema is not None
    stated = choice.clarifying_answer.schema["properties"]["stated"]
    assert stated["enum"] == ["Park", "None of these", "declined"]


def test_options_without_labels_cannot_be_chosen_by_number() -> None:
    assert isinstance(Choice(["no", "yes"], with_labels=False).parse_reply("1"), ParseFailure)
    assert Choice(["no", "yes"]).parse_reply("1") == ParsedAnswer("no", "number")


def test_options_that_look_like_numbers_are_listed_by_letter() -> None:
    assert format_option_list(["Park", "Mall"]) == "1. Park\n2. Mall"
    assert format_option_list(["10 %", "No change"]) == "A. 10 %\nB. No change"
    assert format_option_list(["Two", "One"]).startswith("A.")
    assert format_option_list(["B2", "A1"]) == "- B2\n- A1"  # letters would be ambiguous as well


# Generated options in any decoration.
_PIECES = st.sampled_from([*"aAbBcC12350", *"+-#%*.!?()/&", " ", "Ａ", "１", "é", "ß", "no ", "I "])
OPTION = st.lists(_PIECES, min_size=1, max_size=6).map("".join).filter(str.strip)
SIMILAR_OPTIONS = st.sampled_from(
    ["Park", "park", "Ｐark", "Park A", "Park A+", "Mall", "No", "10 %", "1 %"]
)
OPTION_LISTS = st.lists(OPTION | SIMILAR_OPTIONS, min_size=2, max_size=6, unique=True)
QUOTED_FORMS = [
    f"{opening}{{}}{closing}"
    for opening, closing in ('""', "''", "«»", "„“", "»«", "‘’", "()", "[]", "``")
]
MARKED_FORMS = ["**{}**", "*{}*", "_{}_", "__{}__", "- {}", "• {}", "# {}", "\\boxed{{{}}}"]
CLOSED_FORMS = ["{}", "{}.", "{}!", "{}。", " {} ", "\n{}\n", "{}\u200b"]
NUMBERED_FORMS = [
    "{n}. {}",
    "{n}) {}",
    "({n}) {}",
    "#{n} {}",
    "Option {n}: {}",
    "{l}) {}",
    "**{l}.** {}",
]
NUMBERED_FORMS += [
    "{n} - {}",
    "{n}: {}",
    "{n} = {}",
    "{l}. {}",
    "Option {l} - {}",
    "[{n}] {}",
    "> {}",
]
SENTENCE_FORMS = [
    "I choose {}",
    "My vote is {}",
    "Answer: {}",
    "I'd go with {}.",
    "{} gets my vote",
]
SENTENCE_FORMS += [
    "Well, {}",
    "{} it is",
    "{} is my choice",
    "The answer is {}",
    "Option: {}",
    "I say {}",
]
TRAILING_FORMS = ["{},", "{};", "{}:", "{}?", "{}…", "{}!!", "{}..", "{} "]
DECORATIONS = st.sampled_from(
    [*QUOTED_FORMS, *MARKED_FORMS, *CLOSED_FORMS, *NUMBERED_FORMS, *SENTENCE_FORMS, *TRAILING_FORMS]
)
CASE_CHANGES = st.sampled_from([str, str.upper, str.lower, str.swapcase, str.title])


def test_a_label_beside_the_mark_of_another_option_is_not_read() -> None:
    assert isinstance(Choice(["Park", "."]).parse_reply("a. ."), ParseFailure)
    # Letters are the labels, because an option looks like a number.
    assert isinstance(Choice(["Park", "10 %", "."]).parse_reply('"a. ."'), ParseFailure)
    assert Choice(["👍", "👎"]).parse_reply("2").value == "👎"


@settings(max_examples=300, deadline=None)
@given(OPTION_LISTS, st.data())
def test_a_decorated_option_is_read_as_that_option_or_not_at_all(
    options: list[str], data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, len(options) - 1))
    reply = options[position]
    for _ in range(data.draw(st.integers(0, 3))):
        n = data.draw(st.integers(1, 9))
        reply = data.draw(DECORATIONS).format(reply, n=n, l="abcdefghi"[n - 1])
    reply = data.draw(CASE_CHANGES)(reply)
    parsed = Choice(options).parse_reply(reply)
    assert isinstance(parsed, ParseFailure) or parsed.value == options[position]


@settings(max_examples=300, deadline=None)
@given(OPTION_LISTS)
def test_every_option_is_read_from_its_text_unless_another_is_indistinguishable(
    options: list[str],
) -> None:
    unclear_positions = {position for pair in indistinguishable_pairs(options) for position in pair}
    for position, option in enumerate(options):
        parsed = Choice(options).parse_reply(option)
        if position in unclear_positions:
            assert isinstance(parsed, ParseFailure) or parsed.value == option
        else:
            assert isinstance(parsed, ParsedAnswer) and parsed.value == option


@settings(max_examples=300, deadline=None)
@given(OPTION_LISTS)
def test_every_label_of_the_list_selects_its_option(options: list[str]) -> None:
    assume(not indistinguishable_pairs(options))
    for line, option in zip(format_option_list(options).split("\n"), options, strict=True):
        label = line.split(" ", 1)[0]
        if label != "-":
            parsed = Choice(options).parse_reply(label)
            assert isinstance(parsed, ParsedAnswer) and parsed.value == option


@pytest.mark.parametrize(
    ("options", "pairs"),
    [
        (["Park", "park"], [(0, 1)]),
        (["Park", "Mall", "Ｐark."], [(0, 2)]),
        (["Park", "(1) Park"], [(0, 1)]),
        (["I choose Park", "Park"], [(0, 1)]),
        (["5", "5."], [(0, 1)]),
        (["Plan A+", "Plan A-", "Plan A"], []),
        (["C", "C++", "C#", "c--"], []),
        (["Yes", "Definitely yes", "Yes?"], []),
        (["*", "**", "***"], []),
        ([str(n) for n in range(101)], []),
        (["<18", "18-24", "25–34", "65+"], []),
    ],
)
def test_pairs_of_indistinguishable_options(
    options: list[str], pairs: list[tuple[int, int]]
) -> None:
    assert indistinguishable_pairs(options) == pairs


@pytest.mark.parametrize(
    "reply",
    [
        "I refuse to vote.",
        "I abstain.",
        "As an AI, I have no preferences.",
        "I'm sorry, but I can’t take part in this.",
        "I do not want to choose.",
        "I'd rather not vote",
        "I can't choose between them.",
        "I won't vote for any of these.",
        "I will not choose any option, thank you",
    ],
)
def test_refusals_to_vote_are_recognised(reply: str) -> None:
    assert looks_like_refusal(reply)
    assert isinstance(Choice(PARK_AND_MALL).parse_reply(reply), ParseFailure)


@pytest.mark.parametrize(
    "reply",
    [
        *("No change", "I refuse to give up my garden.", "I abstain from alcohol.", "No", "Hm."),
        "I will choose 1. Shoot the ball in the air, but I will not choose 2 or 3.",
        *("I won't vote for Park.", "I can't choose the mall", "I'd rather not choose option 2"),
    ],
)
def test_an_opinion_is_not_a_refusal(reply: str) -> None:
    assert not looks_like_refusal(reply)


@pytest.mark.parametrize("reply", ["*a" * 3000, '"' * 1900, "(" * 990 + ")" * 990, "ok " * 600])
def test_huge_replies_are_unreadable(reply: str) -> None:
    assert isinstance(Choice(PARK_AND_MALL).parse_reply(reply), ParseFailure)


def test_texts_of_a_table_are_read_as_replies_are() -> None:
    texts = ["park", "Park", "2", "Rail", "RAIL", "declined", "Park and ride."]
    assert match_spellings(texts, PARK_AND_MALL) == {
        "park": "Park",
        "Park": "Park",
        "2": "2",
        "Rail": "Rail",
        "RAIL": "Rail",
        "declined": None,
        "Park and ride.": "Park and ride",
    }


@pytest.mark.parametrize(
    ("options", "reply", "expected"),
    [
        (["2.50", "5.00"], "2.5", "2.50"),
        (["2.50", "5.00"], '{"vote": 5.0}', "5.00"),
        (["1", "2"], '{"vote": 2.0}', "2"),
        (["0.0", "1.0", "2.0"], "I choose 1.", "1.0"),
        (["2.5", "2.50"], "2.50", "2.50"),
        # These are no number of any option, or that of two.
        (["2.50", "5.00"], "2", None),
        (["1.000", "2.000"], "1", None),
        (["+2", "2.0"], "2", None),
        (["2.50", "5.00"], "-2.5", None),
    ],
)
def test_an_option_that_is_a_number_may_be_written_with_other_decimals(
    options: list[str], reply: str, expected: str | None
) -> None:
    parsed = Choice(options).parse_reply(reply)
    assert (parsed.value if isinstance(parsed, ParsedAnswer) else None) == expected


def test_a_number_in_the_json_of_a_clarification_is_the_option_as_it_is_written() -> None:
    clarification = Choice(["2.00", "2.50"]).clarifying_answer
    assert clarification is not None
    parsed = clarification.parse_reply('{"stated": 2.50}')
    assert isinstance(parsed, ParsedAnswer) and parsed.value == "2.50"
