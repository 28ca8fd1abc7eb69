"""Draw the pictures of the README and of other pages from runs of the examples.

Usage: `python docs/images/draw.py`, or `python docs/images/draw.py seat` for the page of a human
alone. Screenshots need Chromium and are skipped without it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import FloatRect, sync_playwright

import folkmoot
from folkmoot.report.document.charts import render_svgs

HERE = Path(__file__).parent
# Outside of a report the drawing must adapt to light and dark mode and carry its label.
STYLE = "<style>svg{color:#1b1b1b}@media(prefers-color-scheme:dark){svg{color:#e6edf3;filter:brightness(1.35)}}</style>"
RUN = "city_budget"
MARK = "SYNTHETIC: planted by the embedded respondent, not about people"
FOOT = 22


def main() -> None:
    browser = shutil.which("chromium") or shutil.which("chrome")
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1:] == ["seat"]:
            assert browser is not None, "this picture needs Chromium"
            photograph_seat(Path(folder), browser)
            return
        example = HERE.parents[1] / "examples" / "cross_pollination.yaml"
        run = folkmoot.run(example, out=Path(folder) / RUN)
        finding = next(f for f in run.findings if f.key == "position_change")
        assert finding.chart is not None
        (picture,) = render_svgs(finding.chart, f"{finding.title}. {finding.says}")
        (HERE / "position_change.svg").write_text(make_standalone(picture), "utf-8")
        print(finding.says)
        if browser is not None:
            photograph_viewer(Path(folder), browser)
            photograph_seat(Path(folder), browser)


def photograph_viewer(folder: Path, browser: str) -> None:
    """Photograph a run, a participant who argued and changed their choice, and a prompt."""
    command = (sys.executable, "-m", "folkmoot", "view", str(folder / RUN), "--port", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1].rstrip("/")
        people = folkmoot.load(folder / RUN).table("participants")
        moved = people.filter(condition="acp", position_changed=True)["participant_id"][0]
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = chromium.new_page(viewport={"width": 1000, "height": 1000})
            page.goto(f"{address}/run/{RUN}/-/")
            page.wait_for_selector(".finding", timeout=120_000)
            page.screenshot(path=HERE / "view_run.png")
            page.goto(f"{address}/run/{RUN}/-/person?id={moved}")
            page.set_viewport_size({"width": 1000, "height": 1150})
            page.screenshot(path=HERE / "view_person.png")
            decisions = folkmoot.load(folder / RUN).table("exposure")
            final = decisions.filter(participant_id=moved, decision="final vote")["address"][0]
            page.goto(f"{address}/run/{RUN}/-/said?at={quote(final, safe='')}")
            page.set_viewport_size({"width": 1280, "height": 3000})
            first = page.locator(".legend").bounding_box()
            last = page.locator("pre").nth(4).bounding_box()
            assert first and last
            top, bottom = first["y"] - 14, last["y"] + last["height"] + 12
            part: FloatRect = {"x": 24, "y": top, "width": 1232, "height": bottom - top}
            page.screenshot(path=HERE / "provenance.png", full_page=True, clip=part)
            chromium.close()
        server.terminate()


def photograph_seat(folder: Path, browser: str) -> None:
    """Photograph the page of a human in a focus group after others have spoken."""
    example = str(HERE.parents[1] / "examples" / "focus_group.yaml")
    command = [sys.executable, "-m", "folkmoot", "run", example, "--out", str(folder / "talk")]
    command += ["--model", "synthetic", "--set", "replications=1", "--seat", "p_0002"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        link = next(line for line in run.stderr if line.startswith("Seat ")).split(": ", 1)[1]
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = chromium.new_page(viewport={"width": 1000, "height": 1000})
            page.goto(link.strip())
            page.locator("button.primary").click()
            turn = page.locator("form.answer")
            turn.wait_for(timeout=60_000)
            while page.locator("ol.talk li").count() < 3:
                before = page.locator("#seat").get_attribute("data-shows")
                for box in turn.locator("textarea").all():
                    box.fill("I would want to see it work in somebody's kitchen first.")
                for box in turn.locator("input[type=number]").all():
                    box.fill("0")
                for options in turn.locator("fieldset.options").all():
                    options.locator("input[type=radio]").first.check()
                turn.locator("button.primary").click()
                # Until the next question, the page says that others are being asked.
                shown = f'#seat:not([data-shows="{before}"]) form.answer'
                page.locator(shown).wait_for(timeout=60_000)
            turn.locator("textarea").first.fill("Who cleans it when something boils over?")
            page.locator(".send").evaluate("e => e.scrollIntoView({block: 'end'})")
            page.screenshot(path=HERE / "seat.png")
            chromium.close()
        run.kill()


def make_standalone(svg: str) -> str:
    """Return a drawing with a size, colours for light and dark mode, and the provenance label."""
    width, height = (float(x) for x in re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups())  # type: ignore[union-attr]
    head, rest = svg.split(">", 1)
    head = re.sub(r' style="[^"]*"| viewBox="[^"]*"', "", head)
    tall = height + FOOT
    size = f'width="{width:g}" height="{tall:g}" viewBox="0 0 {width:g} {tall:g}"'
    mark = (
        f'<text x="{width / 2:g}" y="{tall - 6:g}" text-anchor="middle" font-size="11" '
        f'font-family="Liberation Sans, Arial, Helvetica, sans-serif" fill="currentColor" '
        f'fill-opacity="0.7">{MARK}</text></svg>'
    )
    return f"{head} {size}>{STYLE}{rest.removesuffix('</svg>')}{mark}"


if __name__ == "__main__":
    main()
