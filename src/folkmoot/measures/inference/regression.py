"""Logistic regression of a yes/no outcome. A group may have only yes or only no."""

# Studies use the regression to estimate an effect, adjusted for the first choice and demographics.
# In a randomised design the difference of shares is the main result, and the regression checks it.

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from folkmoot.measures.inference.distributions import normal_p
from folkmoot.measures.inference.estimates import NORMAL_QUANTILE, Estimate

FloatArray = NDArray[np.float64]
Column = Sequence[str | float | int | None]

# Newton's method has converged if the last step changes all predicted log odds by less.
_CONVERGED = 1e-10
# The largest condition number of the information. In separated data the estimate grows until the
# fitted probabilities of all rows that could determine it are 0 or 1, and the number exceeds 1e13.
_MOST_SINGULAR = 1e11


@dataclass(frozen=True, slots=True)
class Term:
    """One coefficient of a logistic regression, as an odds ratio with its interval."""

    variable: str
    # The level of a categorical variable, or an empty string for a numeric one.
    level: str
    odds_ratio: float
    low: float
    high: float
    p: float

    def as_log_odds(self, n: int) -> Estimate:
        """Return the coefficient as the logarithm of the odds ratio.

        - `n`: the number of rows of data.
        """
        value, low, high = np.log([self.odds_ratio, self.low, self.high]).tolist()
        return Estimate(value, low, high, n, p=self.p)


@dataclass(frozen=True, slots=True)
class Logit:
    """A fitted logistic regression, made by `logistic`."""

    # The coefficients, or empty if nothing could be fitted.
    terms: tuple[Term, ...]
    # Number of used rows.
    n: int
    # Number of these rows with a yes.
    events: int
    # Number of rows dropped for a missing value.
    incomplete: int
    # The names of the methods (`estimator`, `errors`).
    estimator: str
    errors: str
    # The baseline level of each categorical variable.
    reference: Mapping[str, str]
    # The dropped levels and columns.
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Design:
    """A design matrix, shape (n, k), with its column names. Column 0 is the constant."""

    # A column name is (variable, level).

    matrix: FloatArray
    columns: tuple[tuple[str, str], ...]
    reference: Mapping[str, str]
    left_out: tuple[str, ...]


def logistic(
    outcome: Sequence[bool | None],
    columns: Mapping[str, Column],
    reference: Mapping[str, str] | None = None,
) -> Logit:
    """Fit a logistic regression of a yes/no outcome and return its odds ratios.

        logistic(changed, {"arm": arms, "age": ages}, {"arm": "control"})

    - `outcome`: yes or no, shape (n,). Rows with None are dropped and counted.
    - `columns`: n texts or numbers for each variable.
    - `reference`: for each variable with texts, the level with which the other levels are compared.
      Default: the most frequent level.

    Levels and columns without information are left out and named in `Logit.left_out`.

    Sources: Firth (1993), doi:10.1093/biomet/80.1.27. Heinze and Schemper (2002),
    doi:10.1002/sim.1047.
    """
    # If a group never or always has the outcome, ordinary estimates would be infinite. Firth's
    # method is then used for all terms, and `estimator` names it.
    keep = [
        i
        for i, y in enumerate(outcome)
        if y is not None and all(_is_present(values[i]) for values in columns.values())
    ]
    y = np.array([float(bool(outcome[i])) for i in keep])
    built = design({k: [column[i] for i in keep] for k, column in columns.items()}, reference or {})
    n, events = len(y), int(y.sum())
    incomplete = len(outcome) - n
    labels = "heteroskedasticity-consistent (HC1)"
    if n <= built.matrix.shape[1] or events in (0, n) or built.matrix.shape[1] < 2:
        return Logit((), n, events, incomplete, "none", labels, built.reference, built.left_out)
    # Both methods give the same odds ratios for columns with another origin and unit. Standardised
    # columns keep them exact, also for years of birth or incomes.
    predictors = built.matrix[:, 1:]
    spread = predictors.std(axis=0)
    x = np.column_stack([built.matrix[:, 0], (predictors - predictors.mean(axis=0)) / spread])
    fitted = _maximum_likelihood(y, x)
    estimator = "maximum likelihood"
    if fitted is None:
        fitted, estimator, labels = firth(y, x), "Firth (separation)", "model-based"
    beta, covariance = fitted
    unit = np.array([1.0, *spread])
    terms = _model_terms(built, beta / unit, covariance / np.outer(unit, unit))
    return Logit(terms, n, events, incomplete, estimator, labels, built.reference, built.left_out)


def design(columns: Mapping[str, Column], reference: Mapping[str, str]) -> Design:
    """Return the design matrix of a regression.

    - `columns`: numbers or texts without missing values.
    - `reference`: the reference level of each column of texts.
    """
    # One column for each number and each non-reference level, in alphabetical order. Columns that
    # follow from others are left out.
    length = len(next(iter(columns.values()), []))
    matrix: list[FloatArray] = [np.ones(length)]
    names: list[tuple[str, str]] = [("", "")]
    base: dict[str, str] = {}
    left_out: list[str] = []
    for name, values in columns.items():
        parts = _design_column_or_reference(name, values, reference.get(name))
        if isinstance(parts, str):
            base[name] = parts
            parts = _columns_of(name, values, parts)
        for column_name, column in parts:
            trial = np.column_stack([*matrix, column])
            # Check collinearity column by column, so that earlier columns are kept.
            if np.linalg.matrix_rank(trial) < trial.shape[1]:
                left_out.append(": ".join(filter(None, column_name)))
                continue
            matrix.append(column)
            names.append(column_name)
    return Design(np.column_stack(matrix), tuple(names), base, tuple(left_out))


def firth(y: FloatArray, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Fit a logistic regression with Firth's penalty.

    Returns the coefficients, shape (k,), and their covariance, shape (k, k).
    """
    # Unlike ordinary estimates, these are finite even if a group never or always has the outcome.
    # The fit maximises log L + ½ log |X'WX|. The covariance is the inverse information. A sandwich
    # would be far too narrow: if a group never or always has the outcome, its residuals are nearly
    # zero.
    beta = np.zeros(x.shape[1])
    for _ in range(200):
        bread, scores = _firth_scores(y, x, beta)
        step = bread @ scores.sum(axis=0)
        longest = float(np.abs(step).max())
        # Limit a step to 2 log odds: full steps can overshoot in separated data.
        beta = beta + step * min(1.0, 2.0 / longest if longest else 1.0)
        if longest < 1e-9:
            break
    return beta, _firth_scores(y, x, beta)[0]


def _firth_scores(y: FloatArray, x: FloatArray, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
    # The covariance (k, k) of the coefficients, and the score of each row (n, k).
    pi = 1 / (1 + np.exp(-np.clip(x @ beta, -30, 30)))
    root: FloatArray = np.sqrt(pi * (1 - pi))[:, None] * x
    bread = np.asarray(np.linalg.pinv(root.T @ root), float)
    leverage = np.einsum("ij,jk,ik->i", root, bread, root)
    return bread, x * (y - pi + leverage * (0.5 - pi))[:, None]


def _maximum_likelihood(y: FloatArray, x: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    # None if the likelihood has no finite maximum. `x`: standardised, so that only the fitted
    # probabilities of the rows decide, and not the units of the columns.
    n, k = x.shape
    beta = np.zeros(k)
    for _ in range(100):
        pi = 1 / (1 + np.exp(-np.clip(x @ beta, -500, 500)))
        information = x.T @ (x * (pi * (1 - pi))[:, None])
        try:
            step = np.linalg.solve(information, x.T @ (y - pi))
        except np.linalg.LinAlgError:
            return None
        beta = beta + step
        if np.abs(x @ step).max() < _CONVERGED:
            break
    else:
        return None
    if not np.isfinite(beta).all() or np.linalg.cond(information) > _MOST_SINGULAR:
        return None
    # The sandwich HC1.
    bread = np.linalg.inv(information)
    meat = x.T @ (x * ((y - pi) ** 2)[:, None])
    return beta, bread @ meat @ bread * n / (n - k)


def _model_terms(built: Design, beta: FloatArray, covariance: FloatArray) -> tuple[Term, ...]:
    reach = NORMAL_QUANTILE
    errors = np.sqrt(np.clip(np.diag(covariance), 0, None))
    terms = []
    for (variable, name), b, se in list(zip(built.columns, beta, errors, strict=True))[1:]:
        p = normal_p(b / se) if se > 0 else math.nan
        # Above 700 `math.exp` overflows.
        ends = (b, b - reach * se, b + reach * se)
        ratio, low, high = (math.exp(min(end, 700.0)) for end in ends)
        terms.append(Term(variable, name, ratio, low, high, p))
    return tuple(terms)


def _is_present(value: str | float | int | None) -> bool:
    return value not in (None, "") and not (isinstance(value, float) and math.isnan(value))


def _design_column_or_reference(
    name: str, values: Column, reference: str | None
) -> str | list[tuple[tuple[str, str], FloatArray]]:
    # For texts, the reference level: the most frequent text if `reference` does not occur.
    if values and all(
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in values
    ):
        return [((name, ""), np.array(values, float))]
    counts = Counter(str(value) for value in values)
    if reference in counts:
        return str(reference)
    return min(counts, key=lambda v: (-counts[v], v), default="")


def _columns_of(
    name: str, values: Column, reference: str
) -> list[tuple[tuple[str, str], FloatArray]]:
    levels = list(dict.fromkeys(sorted({str(value) for value in values} - {reference})))
    return [((name, lv), np.array([float(str(value) == lv) for value in values])) for lv in levels]
