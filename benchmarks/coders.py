"""Measure how well a model codes the texts of the tests: Krippendorff's α with human coders.

    python -m benchmarks.coders MODEL [CODEBOOK …] [--texts N] [--tokens N]

`--texts N` codes the first N texts of each codebook. Without it all are coded (about 750 calls).
"""

from __future__ import annotations

import argparse
from itertools import islice

from folkmoot.kit import coding
from folkmoot.kit.coding.coder import build_coder_prompt
from folkmoot.models.call_llm import call_llm
from tests.kit.test_hand_coded import CODEBOOKS, code_texts, compute_alpha, read_texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("codebooks", nargs="*", default=sorted(CODEBOOKS))
    parser.add_argument("--texts", type=int)
    parser.add_argument("--tokens", type=int, default=600, help="longest reply")
    wanted = parser.parse_args()

    def ask(book: coding.Codebook, text: coding.TextToCode) -> str:
        system = build_coder_prompt(book, text)
        return call_llm(wanted.model, None, text.text, system=system, max_tokens=wanted.tokens)

    print(f"{'codebook':<12}{'texts':>6}{'read':>6}{'α':>8}")
    for name in wanted.codebooks:
        some = dict(islice(read_texts(name).items(), wanted.texts))
        codes = code_texts(name, ask, some)
        print(
            f"{name:<12}{len(some):>6}{len(codes):>6}{compute_alpha(name, codes):>8.2f}", flush=True
        )


if __name__ == "__main__":
    main()
