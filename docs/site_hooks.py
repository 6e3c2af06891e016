"""What mkdocs.yml cannot say: the README is the site's home, and files outside docs/ that pages link are pages too."""

import re
from base64 import b64encode
from pathlib import Path
from posixpath import dirname, relpath
from typing import Any

import mermaidx
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()[^)#\s:]+(?=[)#])")
DIAGRAM = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
API = re.compile(r"^- \[`(lockstep[\w.]*)`\]\(.*\)$", re.MULTILINE)
"""A line of api.md: on GitHub a link to the source, in the site what mkdocstrings writes of the docstrings."""


def linked(uri: str, link: str) -> str:
    """Return the name by which mkdocs knows the file that a page links, or nothing if the checkout has no such file."""
    path = (ROOT if uri == "index.md" else ROOT / "docs" / uri / "..").joinpath(link).resolve()
    if not path.exists() or not path.is_relative_to(ROOT):
        return ""
    name = str(path.relative_to(ROOT))
    return {"README.md": "index.md"}.get(name) or (name[5:] if name.startswith("docs/") else f"source/{name}.md")


def on_files(files: Files, config: MkDocsConfig) -> None:
    files.append(File.generated(config, "index.md", abs_src_path=str(ROOT / "README.md")))
    pages = [file.src_uri for file in files.documentation_pages()]
    texts = {uri: API.sub("", files.src_uris[uri].content_string) for uri in pages}
    targets = {linked(uri, link) for uri, text in texts.items() for link in LINK.findall(text)}
    for uri in sorted(target for target in targets if target.startswith("source/")):
        page = source(ROOT / uri.removeprefix("source/").removesuffix(".md"))
        files.append(File.generated(config, uri, content=page, inclusion=InclusionLevel.NOT_IN_NAV))
    named = {*re.findall(r"[\w/]+\.md", repr(config.nav))}
    config.nav = expand(config.nav, sorted(set(pages) - named, key=lambda uri: (not uri.endswith("README.md"), uri)))


def source(path: Path) -> str:
    """Return a page with the text of a file, or of each file of a folder, which the search leaves out."""
    files = [*filter(Path.is_file, sorted(path.iterdir()))] if path.is_dir() else [path]
    blocks = (f"~~~~ {{.{file.suffix[1:]} title={file.name}}}\n{file.read_text()}\n~~~~" for file in files)
    return "\n\n".join(("---\nsearch: {exclude: true}\n---", f"# {path.relative_to(ROOT)}", *blocks))


def expand(nav: Any, pages: list[str]) -> Any:
    """Replace a pattern, such as `course/*.md`, by the pages of that folder."""
    if isinstance(nav, str):
        return [page for page in pages if dirname(page) == dirname(nav)] if "*" in nav else nav
    if isinstance(nav, dict):
        return {title: expand(below, pages) for title, below in nav.items()}
    entries = (expand(entry, pages) for entry in nav)
    return [each for entry in entries for each in (entry if isinstance(entry, list) else [entry])]


def as_picture(diagram: re.Match[str]) -> str:
    """Return a diagram of Mermaid as a picture: its script would come from elsewhere."""
    svg = mermaidx.render(diagram[1]).svg()
    return f"![diagram](data:image/svg+xml;base64,{b64encode(svg.encode()).decode()})"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri

    def site_link(match: re.Match[str]) -> str:
        target = linked(uri, match[0])
        return relpath(target, dirname(uri)) if target else match[0]

    return LINK.sub(site_link, API.sub(r"::: \1", DIAGRAM.sub(as_picture, markdown)))
