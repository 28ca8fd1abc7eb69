"""Count names, comments and docstrings that break the rules for them.

Usage: python tools/count_names.py [FOLDER]. Prints figures for the sources below FOLDER
(src/folkmoot if omitted). The figures are no test. A name's length is counted without
underscores at its ends, and names such as `__init__` are left out. A name of one word has no
underscore inside. A local variable is a name bound in a function, once per function, parameters
excluded; bindings of comprehensions belong to the function around them.
"""

import ast
import collections
import io
import re
import statistics
import sys
import tokenize
from pathlib import Path

FORBIDDEN = frozenset(
    (
        "one",
        "told",
        "heard",
        "put",
        "stood",
        "begins",
        "known",
        "found",
        "away",
        "said",
        "held",
        "drawn",
        "aloud",
        "moved",
        "asked",
        "named",
        "listed",
        "shown",
        "given",
        "seen",
        "called",
        "described",
        "checked",
        "plain",
        "of",
        "kept",
        "taken",
        "settled",
        "spoken",
        "folded",
        "figure",
        "short",
    )
)
DOCSTRING_WORDS = re.compile(r"\b(whose|stood|somebody|nobody)\b", re.IGNORECASE)
FORMULAS = "measures"
STUDIES = "studies"
SHOWN = 5

Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_one_letter(name: str) -> bool:
    """Return whether a name has one letter. `_` marks an unused value and does not count."""
    return len(name.strip("_")) == 1


def functions_in(tree: ast.Module) -> list[Function]:
    """Return all functions and methods of a module, including nested ones."""
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def parameters_of(function: Function) -> list[str]:
    """Return the names of a function's parameters."""
    arguments = function.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    listed += [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return [argument.arg for argument in listed]


def locals_of(function: Function) -> set[str]:
    """Return the names bound in a function's body, without those of nested functions."""
    names: set[str] = set()
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function | ast.ClassDef):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
        waiting.extend(ast.iter_child_nodes(node))
    return names - set(parameters_of(function)) - {"_"}


def count_comments(source: str) -> int:
    """Count the lines with a comment, without comments for a tool (`noqa`, `type: ignore`)."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return sum(not re.match(r"#\s*(noqa|type:|fmt:|!)", comment) for comment in comments)


def print_examples(title: str, places: list[str]) -> None:
    """Print how many places there are, and the first ones."""
    print(f"{len(places):6}  {title}")
    for place in places[:SHOWN]:
        print(f"        {place}")


def main() -> None:
    """Read the sources and print the figures."""
    root = (
        Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "src" / "folkmoot"
    )
    names: list[str] = []
    forbidden: list[str] = []
    short_parameters: list[str] = []
    docstrings: list[str] = []
    local_count = short_local_count = docstring_count = 0
    classes: dict[str, set[str]] = collections.defaultdict(set)
    lines: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        package = relative.parts[0] if len(relative.parts) > 1 else "(ground floor)"
        lines[package][0] += len(source.splitlines())
        lines[package][1] += count_comments(source)
        for node in ast.walk(tree):
            if isinstance(node, Function | ast.ClassDef | ast.Module) and (
                text := ast.get_docstring(node)
            ):
                docstring_count += 1
                if match := DOCSTRING_WORDS.search(text):
                    docstrings.append(f"{relative}:{getattr(node, 'lineno', 1)} {match[0]}")
        for function in functions_in(tree):
            place = f"{relative}:{function.lineno} {function.name}"
            if not (function.name.startswith("__") and function.name.endswith("__")):
                names.append(function.name.strip("_"))
            if function.name.strip("_") in FORBIDDEN:
                forbidden.append(place)
            if relative.parts[0] != FORMULAS:
                short_parameters += [
                    f"{place}({name})" for name in parameters_of(function) if is_one_letter(name)
                ]
            bound = locals_of(function)
            local_count += len(bound)
            short_local_count += sum(map(is_one_letter, bound))
        if relative.parts[0] != STUDIES:
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    classes[node.name].add(str(relative))
    twice = sorted(
        f"{name}: {', '.join(sorted(places))}"
        for name, places in classes.items()
        if len(places) > 1
    )
    print(f"{len(names):6}  names of functions")
    print(f"{statistics.mean(map(len, names)):6.1f}  letters on average")
    print(f"{sum('_' not in name for name in names) / len(names):6.1%}  of one word")
    print_examples("functions with a forbidden name", forbidden)
    print_examples(f"parameters of one letter outside {FORMULAS}", short_parameters)
    print(f"{local_count:6}  local variables")
    print(f"{short_local_count / local_count:6.1%}  of one letter")
    print_examples(f"public class names defined twice outside {STUDIES}", twice)
    print(f"{docstring_count:6}  docstrings")
    print_examples("docstrings with whose, stood, somebody or nobody", docstrings)
    print("comments per 100 lines:")
    for package, (line_count, comment_count) in sorted(lines.items()):
        print(f"{100 * comment_count / line_count:6.1f}  {package} ({line_count:,} lines)")


if __name__ == "__main__":
    main()
