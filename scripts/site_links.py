"""For mkdocs: links to files outside docs/ lose their target, as the site has no such pages.

README.md is docs/index.md there. cargo xtask tidy checks that each target exists.
"""

import posixpath
import re

LINK = re.compile(r"(?<!!)\[(?P<text>[^\]\n]+)\]\((?P<target>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")


def on_page_markdown(markdown, page, **_):
    folder = posixpath.dirname(page.file.src_uri)

    def inside(match):
        target = match["target"]
        if not target or "://" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join("docs", folder, target))
        if path == "README.md":
            home = posixpath.relpath("index.md", folder or ".")
            return f"[{match['text']}]({home})"
        return (
            match[0]
            if path.startswith("docs/") and "." in posixpath.basename(path)
            else match["text"]
        )

    return LINK.sub(inside, markdown)
