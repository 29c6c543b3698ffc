//! Splits comments, docstrings and Markdown into paragraphs without code, and keeps the line number
//! of each word.

use std::ops::Range;
use std::sync::LazyLock;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use regex::Regex;

use super::lex::{Kind, Token};

/// A comment, a docstring or a document. Comments on consecutive lines form one block.
pub struct Block {
    pub text: String,
    /// Offset in `text` and line number in the file of each line.
    lines: Vec<(usize, usize)>,
}

/// A paragraph, heading, list item or table cell, joined to one line.
pub struct Paragraph {
    pub text: String,
    /// Offset of each piece in `text`, and its offset in the text of the block.
    pieces: Vec<(usize, usize)>,
}

impl Block {
    pub fn document(text: &str) -> Self {
        let mut block = Self { text: String::new(), lines: vec![] };
        for (line, text) in text.lines().enumerate() {
            block.push(line + 1, text);
        }
        block
    }

    fn push(&mut self, line: usize, text: &str) {
        self.lines.push((self.text.len(), line));
        self.text.push_str(text);
        self.text.push('\n');
    }

    pub fn first_line(&self) -> usize {
        self.lines.first().map_or(1, |(_, line)| *line)
    }

    pub fn line_count(&self) -> usize {
        self.lines.len()
    }

    fn line(&self, at: usize) -> usize {
        let next = self.lines.partition_point(|(start, _)| *start <= at);
        next.checked_sub(1).map_or(1, |index| self.lines[index].1)
    }

    /// The line number in the file of offset `at` in `paragraph`.
    pub fn line_of(&self, paragraph: &Paragraph, at: usize) -> usize {
        let next = paragraph.pieces.partition_point(|(start, _)| *start <= at);
        let (start, source) = paragraph.pieces[next.saturating_sub(1)];
        self.line(source + at - start)
    }

    /// The paragraphs without code, link targets and addresses.
    pub fn paragraphs(&self) -> Vec<Paragraph> {
        static ADDRESS: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"[a-z]+://[^ )>]+").expect("a regular expression"));
        let mut paragraphs: Vec<Paragraph> = vec![];
        let (mut open, mut code) = (false, false);
        let mut push = |open: &mut bool, at: usize, text: &str| {
            if !std::mem::replace(open, true) {
                paragraphs.push(Paragraph { text: String::new(), pieces: vec![] });
            }
            if let Some(last) = paragraphs.last_mut() {
                last.pieces.push((last.text.len(), at));
                last.text.push_str(text);
            }
        };
        for (event, at) in Parser::new_ext(&self.text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::CodeBlock(_)) => code = true,
                Event::End(TagEnd::CodeBlock) => (code, open) = (false, false),
                // Link targets are not part of the text.
                Event::Start(Tag::Link { .. } | Tag::Emphasis | Tag::Strong)
                | Event::End(TagEnd::Link | TagEnd::Emphasis | TagEnd::Strong) => {}
                Event::Start(_) | Event::End(_) => open = false,
                Event::Text(text) if !code => push(&mut open, at.start, &text),
                // Code counts as a word of the sentence, so insert a placeholder.
                Event::Code(_) => push(&mut open, at.start, "`"),
                Event::SoftBreak | Event::HardBreak => push(&mut open, at.start, " "),
                _ => {}
            }
        }
        for paragraph in &mut paragraphs {
            let blank = |found: &regex::Captures<'_>| "`".repeat(found[0].len());
            paragraph.text = ADDRESS.replace_all(&paragraph.text, blank).into_owned();
        }
        paragraphs
    }
}

/// Converts offsets in a text to line numbers.
pub struct Lines(Vec<usize>);

impl Lines {
    pub fn new(text: &str) -> Self {
        Self(std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }

    pub fn at(&self, place: usize) -> usize {
        self.0.partition_point(|start| *start <= place)
    }

    pub fn of(&self, at: &Range<usize>) -> Range<usize> {
        self.at(at.start)..self.at(at.end.saturating_sub(1).max(at.start)) + 1
    }
}

/// Comments that are directives for tools.
const DIRECTIVES: &[&str] =
    &["!/", "noqa", "fmt: ", "type: ", "ruff: ", "shellcheck ", "svelte-ignore ", "hadolint "];

/// The blocks of comments and docstrings in `tokens`.
pub fn blocks(text: &str, tokens: &[Token], lines: &Lines) -> Vec<Block> {
    let mut blocks: Vec<Block> = vec![];
    // Line number and marker of a comment that would continue the last block.
    let mut continued: Option<(usize, &str)> = None;
    let mut code_line = 0;
    for token in tokens {
        let (inner, at) = (&text[token.at.clone()], lines.of(&token.at));
        match token.kind {
            Kind::Comment => {
                let leader = leader(inner);
                let alone = code_line != at.start;
                if continued != Some((at.start, leader)) || !alone || leader.is_empty() {
                    blocks.push(Block { text: String::new(), lines: vec![] });
                }
                let block = blocks.last_mut().expect("a block was pushed");
                for (line, body) in at.clone().zip(bodies(inner, leader)) {
                    block.push(line, body);
                }
                continued = alone.then_some((at.end, leader));
            }
            Kind::Docstring => {
                let mut block = Block { text: String::new(), lines: vec![] };
                for (line, body) in at.clone().zip(docstring(inner)) {
                    block.push(line, body);
                }
                blocks.push(block);
                (continued, code_line) = (None, at.end - 1);
            }
            _ => (continued, code_line) = (None, at.end - 1),
        }
    }
    let is_prose = |block: &Block| {
        block.text.contains(char::is_alphabetic)
            && !DIRECTIVES.iter().any(|directive| block.text.starts_with(directive))
    };
    blocks.retain(is_prose);
    blocks
}

/// The marker at the start of each line of a comment; empty for comments with an end marker.
fn leader(comment: &str) -> &str {
    let leaders = ["//!", "///", "//", "#:", "#"];
    leaders.into_iter().find(|leader| comment.starts_with(leader)).unwrap_or("")
}

fn bodies<'a>(comment: &'a str, leader: &str) -> Vec<&'a str> {
    if !leader.is_empty() {
        let body = &comment[leader.len()..];
        return vec![body.strip_prefix(' ').unwrap_or(body)];
    }
    let open = ["/**", "/*!", "/*", "<!--"].into_iter().find(|open| comment.starts_with(open));
    let inner = &comment[open.map_or(0, str::len)..];
    let inner = inner.strip_suffix("*/").or_else(|| inner.strip_suffix("-->")).unwrap_or(inner);
    let body = |line: &'a str| {
        let line = line.trim();
        line.strip_prefix('*').map_or(line, str::trim_start)
    };
    inner.split('\n').map(body).collect()
}

/// The lines of a docstring without their common indentation and without examples.
fn docstring(string: &str) -> Vec<&str> {
    let inner = string.trim_start_matches(|c: char| c.is_alphabetic());
    let inner = ["\"\"\"", "'''", "\"", "'"]
        .into_iter()
        .find_map(|quote| inner.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(inner);
    let width = |line: &&str| line.len() - line.trim_start_matches(' ').len();
    let rest = inner.split('\n').skip(1).filter(|line| !line.trim().is_empty());
    let shared = rest.map(|line| width(&line)).min().unwrap_or(0);
    inner
        .split('\n')
        .enumerate()
        .map(|(index, line)| {
            let body = if index == 0 { line } else { line.get(shared..).unwrap_or("") };
            let example = [">>>", "..."].iter().any(|prompt| body.trim_start().starts_with(prompt));
            if example { "" } else { body }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::lex::{Language, lex};

    fn read(text: &str, language: Language) -> Vec<(usize, Vec<String>)> {
        let blocks = blocks(text, &lex(text, language), &Lines::new(text));
        let inner = |block: &Block| block.paragraphs().into_iter().map(|p| p.text).collect();
        blocks.iter().map(|block| (block.first_line(), inner(block))).collect()
    }

    #[test]
    fn comments_on_consecutive_lines_are_one_block() {
        let text = "/// One\n/// block `told`.\n///\n/// ```\n/// told\n/// ```\n// Another\n// block.\n\n\
                    // A third. https://told.example\nlet a; // at the end\n// after it\n";
        let expected = [
            (1, vec!["One block `."]),
            (7, vec!["Another block."]),
            (10, vec!["A third. ````````````````````"]),
            (11, vec!["at the end"]),
            (12, vec!["after it"]),
        ];
        let found = read(text, Language::Rust);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!((found.0, found.1.iter().map(String::as_str).collect()), *expected);
        }
    }

    #[test]
    fn docstrings_lose_their_indentation_and_examples() {
        let text = "def f():\n    \"\"\"Shape.\n\n    >>> told()\n\n    Returns\n    -------\n    int\n        \
                    Text\n    \"\"\"\n";
        let found = read(text, Language::Python);
        assert_eq!(found, [(2, vec!["Shape.".into(), "Returns".into(), "int Text".into()])]);
    }

    #[test]
    fn a_word_is_on_its_line() {
        let text = "let a = 1;\n/* One\n * two\n * three `x` four */\n";
        let block = &blocks(text, &lex(text, Language::C), &Lines::new(text))[0];
        let paragraph = &block.paragraphs()[0];
        let line = |word| block.line_of(paragraph, paragraph.text.find(word).unwrap());
        assert_eq!([line("One"), line("two"), line("four")], [2, 3, 4]);
    }
}
