"""mkdocs hooks: changes to pages for the site, and a check.

- Links to files outside docs/ are removed: the site does not have these files. README.md becomes
docs/index.md. cargo xtask tidy checks that each target exists.
- README.md must list all pages except decisions.
- Code blocks without a language get one: the theme highlights only blocks that have one.
"""

import pathlib
import posixpath
import re

from mkdocs.exceptions import PluginError

# The text of a link may continue on the next line.
LINK = re.compile(
    r"(?<!!)\[(?P<text>[^\]\n]+(?:\n[^\]\n]+)?)\]\((?P<target>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)"
)
# The first line of a shell block: a prompt, a program, or a variable assignment before one.
PROMPT = re.compile(r"\w*\$ ")
COMMAND = re.compile(r"(squall|sudo|curl|make|pip|ssh|echo|export|git|#) |[A-Z_]+=")


def on_files(files, config):
    readme = pathlib.Path(config.config_file_path).with_name("README.md").read_text()
    pages = [file.src_uri for file in files if file.is_documentation_page()]
    wanted = [page for page in pages if page != "index.md" and not page.startswith("adr/0")]
    missing = [page for page in wanted if f"(docs/{page})" not in readme]
    if missing:
        raise PluginError(f"README.md has no link to docs/{', docs/'.join(missing)}")
    return files


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

    return with_languages(LINK.sub(inside, markdown))


def with_languages(markdown):
    lines, fenced = markdown.split("\n"), False
    for number, line in enumerate(lines):
        if not line.lstrip().startswith("```"):
            continue
        if not fenced and line.strip() == "```":
            lines[number] += language_of(lines[number + 1].strip())
        fenced = not fenced
    return "\n".join(lines)


def language_of(first):
    if PROMPT.match(first):
        return "console"
    return "sh" if COMMAND.match(first) else "text"
