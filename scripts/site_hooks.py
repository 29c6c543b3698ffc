"""mkdocs hooks: changes to pages for the site, and a check.

- The site has the schemas, and the examples as pages. Links to other files outside docs/ are
removed. README.md becomes docs/index.md. cargo xtask tidy checks that each target exists.
- Search ranks decisions below all other pages.
- README.md must list all pages except decisions.
- Code blocks without a language get one: the theme highlights only blocks that have one. A line is
not broken within an option of a command.
"""

import pathlib
import posixpath
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

# The text of a link may continue on the next line.
LINK = re.compile(
    r"(?<!!)\[(?P<text>[^\]\n]+(?:\n[^\]\n]+)?)\]\((?P<target>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)"
)
# The first line of a shell block: a prompt, a program, or a variable assignment before one.
PROMPT = re.compile(r"\w*\$ ")
COMMAND = re.compile(r"(squall|sudo|curl|make|pip|ssh|echo|export|git|#) |[A-Z_]+=")
EXAMPLES = {"examples/profiles": "toml", "examples/rules": "text"}
# A command in HTML, and in its text an option.
COMMANDS = re.compile(r'(<div class="language-(?:sh|console)[^>]*>)(.*?)(</div>)', re.DOTALL)
OPTION = re.compile(r"(?<![\w/.-])--?[A-Za-z][\w-]*")


def on_files(files, config):
    root = pathlib.Path(config.config_file_path).parent
    readme = (root / "README.md").read_text()
    pages = [file.src_uri for file in files if file.is_documentation_page()]
    wanted = [page for page in pages if page != "index.md" and not page.startswith("adr/0")]
    missing = [page for page in wanted if f"(docs/{page})" not in readme]
    if missing:
        raise PluginError(f"README.md has no link to docs/{', docs/'.join(missing)}")
    for schema in sorted(root.glob("schemas/*.json")):
        path = schema.relative_to(root).as_posix()
        files.append(File.generated(config, path, abs_src_path=str(schema)))
    for path, language in EXAMPLES.items():
        content = examples(root / path, language)
        files.append(File.generated(config, f"{path}.md", content=content))
    return files


def examples(folder, language):
    """Return a page with the files of a folder."""
    blocks = [f"# {folder.parent.name.title()}: {folder.name}\n"]
    for file in sorted(folder.iterdir()):
        blocks.append(f"## {file.name}\n\n```{language}\n{file.read_text().rstrip()}\n```\n")
    return "\n".join(blocks)


def on_page_markdown(markdown, page, **_):
    if page.file.src_uri.startswith("adr/"):
        page.meta["search"] = {"boost": 0.2}
    folder = posixpath.dirname(page.file.src_uri)

    def inside(match):
        target = match["target"]
        if not target or "://" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join("docs", folder, target))
        if path == "README.md":
            home = posixpath.relpath("index.md", folder or ".")
            return f"[{match['text']}]({home})"
        if path in EXAMPLES:
            path = f"{path}.md"
        elif posixpath.dirname(path) in EXAMPLES:
            heading = posixpath.basename(path).replace(".", "")
            path = f"{posixpath.dirname(path)}.md#{heading}"
        if path.startswith((*EXAMPLES, "schemas/")) and "." in path:
            return f"[{match['text']}]({posixpath.relpath(path, folder or '.')})"
        return (
            match[0]
            if path.startswith("docs/") and "." in posixpath.basename(path)
            else match["text"]
        )

    return with_languages(LINK.sub(inside, markdown))


def on_page_content(html, **_):
    return COMMANDS.sub(lambda match: match[1] + with_options(match[2]) + match[3], html)


def with_options(code):
    """Mark the options in the text between the tags, so that the style sheet keeps them whole."""
    parts = re.split(r"(<[^>]*>)", code)
    parts[::2] = [OPTION.sub(r'<span class="option">\g<0></span>', text) for text in parts[::2]]
    return "".join(parts)


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
