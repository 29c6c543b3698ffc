//! The words of the documents: phrases that docs/style-words.md bans, and where it allows them.

use std::{ops::Range, path::Path};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use regex::{Regex, RegexBuilder};

/// The lists are in it, as fenced blocks.
const RULES: &str = "docs/style-words.md";
/// Made by `cargo xtask generate`: corrected where their text is.
const GENERATED: &[&str] = &[
    "docs/reference/cli.md",
    "docs/reference/otg.md",
    "docs/reference/packets.md",
    "docs/reference/ports.md",
    "docs/reference/rules.md",
    "docs/rfc/tcp.md",
];

/// What the documents may not say.
pub struct Words {
    banned: Vec<Regex>,
    allowed: Vec<Regex>,
}

impl Words {
    /// # Errors
    /// A list that is missing, or a line of it that is no regular expression.
    pub fn read(root: &Path) -> Result<Self, String> {
        let text =
            std::fs::read_to_string(root.join(RULES)).map_err(|e| format!("{RULES}: {e}"))?;
        Ok(Self { banned: list(&text, "banned")?, allowed: list(&text, "allowed")? })
    }

    /// Whether a file's words are checked.
    pub fn covers(file: &str) -> bool {
        let checked = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].contains(&file)
            || (file.starts_with("docs/") && file.ends_with(".md"));
        checked && file != RULES && !GENERATED.contains(&file)
    }

    /// The line and the phrase of everything in `markdown` that is banned.
    pub fn find(&self, markdown: &str) -> Vec<(usize, String)> {
        let mut found = vec![];
        for (start, text) in blocks(markdown) {
            let line = 1 + markdown[..start].matches('\n').count();
            let allowed: Vec<Range<usize>> = self
                .allowed
                .iter()
                .flat_map(|allowed| allowed.find_iter(&text).map(|at| at.range()))
                .collect();
            for at in self.banned.iter().flat_map(|banned| banned.find_iter(&text)) {
                let inside =
                    |outer: &Range<usize>| outer.start <= at.start() && at.end() <= outer.end;
                if !allowed.iter().any(inside) {
                    found.push((line, at.as_str().to_owned()));
                }
            }
        }
        found
    }
}

fn list(text: &str, name: &str) -> Result<Vec<Regex>, String> {
    let begin = format!("```{name}\n");
    let (_, rest) = text.split_once(&begin).ok_or(format!("{RULES}: no list {name:?}"))?;
    let (list, _) = rest.split_once("```").ok_or(format!("{RULES}: {name:?} has no end"))?;
    list.lines()
        .filter(|line| !line.is_empty() && !line.starts_with("# "))
        .map(|line| {
            let regex = RegexBuilder::new(line).case_insensitive(true).build();
            regex.map_err(|error| format!("{RULES}: {error}"))
        })
        .collect()
}

/// The paragraphs, headings, items and cells, each with where it begins and as one line, without
/// code and the targets of links.
fn blocks(markdown: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = vec![];
    let mut open = false;
    let mut code = false;
    for (event, at) in Parser::new_ext(markdown, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(_)) => code = true,
            Event::End(TagEnd::CodeBlock) => (code, open) = (false, false),
            // The target of a link is none of its text.
            Event::Start(Tag::Link { .. } | Tag::Emphasis | Tag::Strong)
            | Event::End(TagEnd::Link | TagEnd::Emphasis | TagEnd::Strong) => {}
            Event::Start(_) | Event::End(_) => open = false,
            Event::Text(text) if !code => say(&mut blocks, &mut open, at.start, &text),
            // Some word stands there.
            Event::Code(_) => say(&mut blocks, &mut open, at.start, "`"),
            Event::SoftBreak | Event::HardBreak => say(&mut blocks, &mut open, at.start, " "),
            _ => {}
        }
    }
    blocks
}

fn say(blocks: &mut Vec<(usize, String)>, open: &mut bool, at: usize, text: &str) {
    if !std::mem::replace(open, true) {
        blocks.push((at, String::new()));
    }
    if let Some((_, block)) = blocks.last_mut() {
        block.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        let list = |text| vec![RegexBuilder::new(text).case_insensitive(true).build().unwrap()];
        Words { banned: list(r"\bbehind\b"), allowed: list(r"behind (a|the) ([a-z]+ )?NAT") }
    }

    #[test]
    fn banned_words_are_found_across_lines_and_not_in_code() {
        let text = "# Behind\n\nRun it\nbehind *this*, `behind that`, behind a NAT,\nbehind the big \
                    NAT.\n\n```\nbehind\n```\n\n- [one](behind.md)\n- behind\n\n| a |\n|---|\n| x \
                    behind |\n";
        let found: Vec<_> = words().find(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(found, [1, 3, 12, 16]);
    }

    #[test]
    fn the_lists_are_there() {
        let words = Words::read(&crate::root()).unwrap();
        assert!(words.banned.len() > 10 && !words.allowed.is_empty());
        assert!(!words.find("A mistake is told with a way out.").is_empty());
    }
}
