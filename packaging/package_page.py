"""What the package page shows: project links, and a README with links that work there.

Hatchling calls this hook when it writes the metadata of the package. A package index shows the
README without the repository around it, so links to files of the repository would lead nowhere.
`pyproject.toml` states the public address of the repository in one line. With that address, links
and pictures get absolute addresses at the tag of the version. Without it, a link becomes its text
and a picture becomes its description.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

CODE_BLOCK = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


class PackagePageHook(MetadataHookInterface):
    """Adds the README and the project links to the metadata of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` and, if the repository has an address, `urls`."""
        repository = self.config["repository"].rstrip("/")
        if repository and not repository.startswith("https://"):
            raise ValueError(
                f"the address of the repository must begin with https://: {repository}"
            )
        tag = f"v{metadata['version']}"
        readme = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": rewrite_links(readme, repository, tag),
        }
        if repository:
            metadata["urls"] = project_links(repository, tag)


def project_links(repository: str, tag: str) -> dict[str, str]:
    """Return the links beside the README, by the labels that package indexes know."""
    return {
        "Homepage": repository,
        "Documentation": f"{repository}/blob/{tag}/docs/index.md",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


def rewrite_links(readme: str, repository: str, tag: str) -> str:
    """Return a README in which no link is relative. Code blocks stay as they are."""

    def rewrite(link: re.Match[str]) -> str:
        picture, text, target = link["picture"], link["text"], link["target"]
        if target.startswith(("https://", "http://", "mailto:", "#")):
            return link[0]
        if repository:
            # `blob` shows a file as a page. Only `raw` gives the bytes of a picture.
            kind = "raw" if picture else "blob"
            return f"{picture}[{text}]({repository}/{kind}/{tag}/{target})"
        return f"*[Picture: {text}]*" if picture else text

    # Splitting by a group keeps the code blocks, at the odd places.
    parts = CODE_BLOCK.split(readme)
    return "".join(part if i % 2 else LINK.sub(rewrite, part) for i, part in enumerate(parts))
