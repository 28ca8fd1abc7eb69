"""Measure how well a model codes the texts of the tests: Krippendorff's α with human coders.

    python -m benchmarks.coders MODEL [CODEBOOK …] [--texts N] [--out FOLDER]

`--texts N` codes the first N texts of each codebook. Without it all are coded (about 750 calls).
The model is asked as in a study. The same command resumes an interrupted measurement.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import islice

import folkmoot
from folkmoot import Session, Study
from folkmoot.kit import coding
from tests.kit.test_hand_coded import CODEBOOK_FILES, Texts, compute_alpha, read_texts


class Config(coding.CodingStudyConfig):
    """The codebooks, and the number of texts of each one (None: all)."""

    codebooks: tuple[str, ...] = ()
    texts: int | None = None


def select_texts(config: Config, name: str) -> Texts:
    """Return the texts of a codebook that are coded."""
    return dict(islice(read_texts(name).items(), config.texts))


async def protocol(session: Session[Config]) -> None:
    """Code the texts of all codebooks."""
    for name in session.config.codebooks:
        texts = [text for text, _ in select_texts(session.config, name).values()]
        await coding.code_texts(session, CODEBOOK_FILES[name], texts)


STUDY = Study("coders", "Coders and hand codes", Config, protocol, tables=coding.TABLES)


def main(arguments: Sequence[str] | None = None) -> None:
    """Code the texts and print α for each codebook."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("codebooks", nargs="*", metavar="codebook", default=sorted(CODEBOOK_FILES))
    parser.add_argument("--texts", type=int)
    parser.add_argument("--out", default="outputs/coders")
    options = parser.parse_args(arguments)
    settings = {"codebooks": options.codebooks, "texts": options.texts}
    run = folkmoot.run(STUDY, settings, model=options.model, out=options.out)
    print(f"{'codebook':<12}{'texts':>6}{'read':>6}{'α':>8}")
    for name, results in coding.read_codings(run.folder).items():
        texts = select_texts(Config(**settings), name)
        alpha = compute_alpha(name, results.codes_by_text, texts)
        print(f"{name:<12}{len(texts):>6}{len(results.codes_by_text):>6}{alpha:>8.2f}")


if __name__ == "__main__":
    main()
