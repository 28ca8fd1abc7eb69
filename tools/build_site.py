"""Build the documentation as a site in site/: `make docs`, or `python -m tools.build_site`.

The pages of docs/ are copied to build/site. Pages that the code determines are added there: the
commands with their options, the names of the Python package, and a report of each study. A link
from a page to a file outside docs/ leads to a copy of that file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import folkmoot
from folkmoot.engine.study.study import find_study, registered_studies

ROOT = Path(__file__).parents[1]
DOCS, SOURCE, SITE = ROOT / "docs", ROOT / "build" / "site", ROOT / "site"
CONFIG = ROOT / "zensical.toml"
LINK = re.compile(r"(\]\()((?:\.\./)+)([^)#\s]+)")
# Settings with which each example runs in seconds. The reports say how small they are.
SMALL: dict[str, tuple[str, tuple[str, ...]]] = {
    "cross_pollination": ("cross_pollination.yaml", ("participants_per_condition=40",)),
    "focus_group": ("focus_group.yaml", ()),
    "negotiation": ("negotiation.yaml", ()),
    "town_hall": ("town_hall.yaml", ()),
    "workbook": ("public_goods.xlsx", ()),
}


def main() -> None:
    """Write the source of the site and build it."""
    write_source(SOURCE)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "-f", str(CONFIG)]
    subprocess.run(command, cwd=ROOT, check=True)
    print(f"{SITE / 'index.html'}; search needs a server: python -m http.server -d site")


def write_source(folder: Path, *, reports: bool = True) -> None:
    """Write all pages of the site below a folder. `reports`: run the studies for the gallery."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder)
    for page in folder.rglob("*.md"):
        page.write_text(copy_linked_files(page, folder), "utf-8")
    (folder / "command_line.md").write_text(describe_commands(), "utf-8")
    (folder / "python_names.md").write_text(describe_names(), "utf-8")
    (folder / "gallery.md").write_text("\n".join(write_gallery(folder, reports=reports)), "utf-8")


def copy_linked_files(page: Path, folder: Path) -> str:
    """Return a page after its links out of docs/ were changed to copies below `files/`."""

    def copy(link: re.Match[str]) -> str:
        original = DOCS / page.relative_to(folder)
        target = Path(os.path.normpath(original.parent / link[2] / link[3]))
        if target.is_relative_to(DOCS) or not target.is_file():
            return link[0]
        # A page of Markdown is shown as text, not built as a page of the site.
        name = target.relative_to(ROOT).as_posix()
        copied = folder / "files" / (f"{name}.txt" if target.suffix == ".md" else name)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target, copied)
        return link[1] + os.path.relpath(copied, page.parent)

    return LINK.sub(copy, page.read_text("utf-8"))


def describe_commands() -> str:
    """Return the reference of the command line, as its own help texts have it."""
    command = [sys.executable, "-m", "typer", "folkmoot.cli.app", "utils", "docs"]
    done = subprocess.run(
        [*command, "--name", "folkmoot", "--title", "The command line"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return _complete_summaries(done.stdout.replace("&#x27;", "'"))


def _complete_summaries(page: str) -> str:
    # Typer cuts the summaries in its lists of commands. The section of a command has the whole one.
    whole = dict(re.findall(r"^#+ `folkmoot ([\w -]+)`\n\n(.+)$", page, re.MULTILINE))
    lines, group = [], ""
    for line in page.splitlines():
        if heading := re.match(r"## `folkmoot ([\w-]+)`", line):
            group = f"{heading[1]} "
        entry = re.match(r"\* `([\w-]+)`: .*\.\.\.$", line)
        summary = entry and (whole.get(group + entry[1]) or whole.get(entry[1]))
        lines.append(f"* `{entry[1]}`: {summary}" if entry and summary else line)
    return "\n".join(lines)


def describe_names() -> str:
    """Return a page with the docstrings of all names that `import folkmoot` gives."""
    values = {name: getattr(folkmoot, name) for name in folkmoot.__all__}
    # Names from a library are documented by the library.
    own = [n for n, v in values.items() if getattr(v, "__module__", "").startswith("folkmoot")]
    parts = [f"::: folkmoot.{name}" for name in sorted(own)]
    start = "Everything that `import folkmoot` gives. How it is used together: "
    return "\n\n".join(
        ("# Python names", f"{start}[Python and notebooks](python_api.md).", *parts, "")
    )


def write_gallery(folder: Path, *, reports: bool) -> Iterator[str]:
    """Yield the lines of the gallery, and run each example for its report."""
    yield "# Gallery of reports\n"
    yield (
        "A report of each study, as `folkmoot report` writes it. The embedded respondent answered, "
        "so the figures are SYNTHETIC: they show what results look like and are no evidence about "
        "people.\n"
    )
    for study in registered_studies():
        example, settings = SMALL[study]
        page = folder / "gallery" / f"{study}.html"
        if reports:
            out = folder.parent / "runs" / study
            shutil.rmtree(out, ignore_errors=True)
            file = ROOT / "examples" / example
            run = folkmoot.run(file, model="synthetic", out=out, overrides=settings)
            page.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(run.report(), page)
        question = find_study(study).question
        yield f"- [{study.replace('_', ' ').capitalize()}](gallery/{study}.html): {question}"


if __name__ == "__main__":
    main()
