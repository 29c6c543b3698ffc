//! Checks the words in comments, names and documents against docs/style-words.md. It is a ratchet:
//! the counts per area in xtask/words.toml may only fall.

mod lex;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use squall_units::{SplitMix64, below};

use crate::{generate, tidy};
use lex::{Kind, Language, Token};
use text::{Block, Lines};

/// The document with the lists, which are fenced blocks.
const RULES: &str = "docs/style-words.md";
const COUNTS: &str = "xtask/words.toml";
/// Files that a test writes with BLESS=1, or that other authors have written.
const SKIPPED: &[&str] =
    &["docs/reference/rules.md", "benches/runs/", "/assets/uPlot", "docs/assets/iframe-worker.js"];

/// A count of findings in an area.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Count {
    /// Matches of the list `banned` in comments and documents.
    Phrases,
    /// Matches of the list `comments` in comments.
    Comments,
    /// Names per file that have a part in the list `identifiers`, and test names with a banned
    /// phrase.
    Identifiers,
}

impl Count {
    const ALL: [Self; 3] = [Self::Phrases, Self::Comments, Self::Identifiers];

    fn key(self) -> &'static str {
        match self {
            Self::Phrases => "phrases",
            Self::Comments => "comments",
            Self::Identifiers => "identifiers",
        }
    }
}

struct Finding {
    count: Count,
    line: usize,
    phrase: String,
}

/// A list of regular expressions. A match counts unless it is within a match of an allowed
/// expression.
struct Phrases {
    /// All expressions in one set, which quickly rejects paragraphs without a match; most have
    /// none.
    any: RegexSet,
    each: Vec<Regex>,
}

impl Phrases {
    fn new(list: &[&str]) -> Result<Self, String> {
        let wrong = |error| format!("{RULES}: {error}");
        let one = |line: &&str| RegexBuilder::new(line).case_insensitive(true).build();
        Ok(Self {
            any: RegexSetBuilder::new(list).case_insensitive(true).build().map_err(wrong)?,
            each: list.iter().map(one).collect::<Result<_, _>>().map_err(wrong)?,
        })
    }

    fn find(&self, text: &str) -> Vec<Range<usize>> {
        let matching = self.any.matches(text).into_iter();
        matching.flat_map(|index| self.each[index].find_iter(text).map(|at| at.range())).collect()
    }
}

struct Words {
    banned: Phrases,
    allowed: Phrases,
    comments: Phrases,
    reasons: Phrases,
    identifiers: BTreeSet<String>,
}

impl Words {
    /// # Errors
    /// A list is missing, or one of its lines is not a regular expression.
    fn read(root: &Path) -> Result<Self, String> {
        let text =
            std::fs::read_to_string(root.join(RULES)).map_err(|e| format!("{RULES}: {e}"))?;
        let phrases = |name| Phrases::new(&list(&text, name)?);
        let identifiers = list(&text, "identifiers")?;
        Ok(Self {
            banned: phrases("banned")?,
            allowed: phrases("allowed")?,
            comments: phrases("comments")?,
            reasons: phrases("reasons")?,
            identifiers: identifiers.iter().flat_map(|l| l.split(' ')).map(String::from).collect(),
        })
    }

    fn in_block(&self, block: &Block, comment: bool) -> Vec<Finding> {
        let mut found = vec![];
        let lists = [(Count::Phrases, &self.banned), (Count::Comments, &self.comments)];
        for paragraph in block.paragraphs() {
            let allowed = self.allowed.find(&paragraph.text);
            for (count, phrases) in &lists[..if comment { 2 } else { 1 }] {
                for at in phrases.find(&paragraph.text) {
                    let within =
                        |outer: &Range<usize>| outer.start <= at.start && at.end <= outer.end;
                    if !allowed.iter().any(within) {
                        let line = block.line_of(&paragraph, at.start);
                        let phrase = paragraph.text[at].trim().chars().take(60).collect();
                        found.push(Finding { count: *count, line, phrase });
                    }
                }
            }
        }
        found
    }

    /// Findings in names; each name counts once per file.
    fn in_names(&self, text: &str, tokens: &[Token], lines: &Lines) -> Vec<Finding> {
        let (mut found, mut seen) = (vec![], BTreeSet::new());
        let (mut attributed, mut function) = (false, false);
        for token in tokens {
            let name = &text[token.at.clone()];
            match token.kind {
                Kind::Attribute => attributed |= name == "#[test]" || name.ends_with("::test]"),
                Kind::Name => {
                    let is_test = function && (attributed || name.starts_with("test_"));
                    if function {
                        attributed = false;
                    }
                    function = name == "fn" || name == "def";
                    let wrong = if is_test {
                        !self.banned.find(&name.replace('_', " ")).is_empty()
                    } else {
                        parts(name).iter().any(|part| self.identifiers.contains(part))
                    };
                    if wrong && seen.insert(name) {
                        let (count, line) = (Count::Identifiers, lines.at(token.at.start));
                        found.push(Finding { count, line, phrase: name.to_owned() });
                    }
                }
                _ => {}
            }
        }
        found
    }

    fn has_reason(&self, block: &Block) -> bool {
        block.paragraphs().iter().any(|paragraph| self.reasons.any.is_match(&paragraph.text))
    }
}

/// The lines of the fenced block with this name.
fn list<'a>(text: &'a str, name: &str) -> Result<Vec<&'a str>, String> {
    let begin = format!("```{name}\n");
    let (_, rest) = text.split_once(&begin).ok_or(format!("{RULES}: no list {name:?}"))?;
    let (list, _) = rest.split_once("```").ok_or(format!("{RULES}: {name:?} has no end"))?;
    Ok(list.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")).collect())
}

/// Splits a name into words: `a_b`, `aB` and `HTTPServer` have two, `AB` has one.
fn parts(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut parts = vec![String::new()];
    for (index, &c) in chars.iter().enumerate() {
        let before = index.checked_sub(1).map(|index| chars[index]);
        let after = chars.get(index + 1);
        let begins = c.is_uppercase()
            && before.is_some_and(|b| {
                b != '_' && (!b.is_uppercase() || after.is_some_and(|a| a.is_lowercase()))
            });
        if begins || c == '_' {
            parts.push(String::new());
        }
        if c != '_' {
            parts.last_mut().expect("one is there").extend(c.to_lowercase());
        }
    }
    parts
}

/// A file that is checked.
struct Source {
    file: String,
    findings: Vec<Finding>,
    /// Comments that are not in tests.
    blocks: Vec<Block>,
    test_blocks: Vec<Block>,
    code_lines: usize,
}

/// The area (crate or directory) in which a file is counted.
fn area(file: &str) -> &str {
    match file.split_once('/') {
        None => "docs",
        Some(("crates", rest)) => rest.split('/').next().unwrap_or(rest),
        Some((folder, _)) => folder.trim_start_matches('.'),
    }
}

/// Whether the words in `file` are checked as those of a document.
fn is_document(file: &str) -> bool {
    file.ends_with(".md")
        && (file.starts_with("docs/")
            || ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].contains(&file))
        && file != RULES
}

fn sources(root: &Path, words: &Words) -> Result<Vec<Source>, String> {
    let checked = |file: &&String| {
        !generate::writes(file) && !SKIPPED.iter().any(|skipped| file.contains(skipped))
    };
    let files = tidy::files(root)?;
    // Skip files that are not text, such as captures and fuzz seeds.
    let read = |file: &String| source(file, &std::fs::read_to_string(root.join(file)).ok()?, words);
    Ok(files.iter().filter(checked).filter_map(read).collect())
}

fn source(file: &str, text: &str, words: &Words) -> Option<Source> {
    if is_document(file) {
        return Some(Source {
            file: file.to_owned(),
            findings: words.in_block(&Block::document(text), false),
            blocks: vec![],
            test_blocks: vec![],
            code_lines: 0,
        });
    }
    let language = Language::of(file, text)?;
    let (tokens, lines) = (lex::lex(text, language), Lines::new(text));
    let mut blocks = text::blocks(text, &tokens, &lines);
    let mut findings: Vec<_> =
        blocks.iter().flat_map(|block| words.in_block(block, true)).collect();
    findings.extend(words.in_names(text, &tokens, &lines));
    findings.sort_by_key(|finding| (finding.line, finding.count));
    let tested = lines.at(tests(file, text, &tokens));
    let test_blocks = blocks.split_off(blocks.partition_point(|block| block.first_line() < tested));
    let is_code = |token: &&Token| !matches!(token.kind, Kind::Comment | Kind::Docstring);
    let code: BTreeSet<usize> =
        tokens.iter().filter(is_code).flat_map(|token| lines.of(&token.at)).collect();
    let code_lines = code.into_iter().filter(|line| *line < tested).count();
    Some(Source { file: file.to_owned(), findings, blocks, test_blocks, code_lines })
}

/// The offset at which the tests in a file begin.
fn tests(file: &str, text: &str, tokens: &[Token]) -> usize {
    if file.split('/').any(|part| part == "tests" || part == "tests.rs") {
        return 0;
    }
    let inner = |token: &Token| &text[token.at.clone()];
    let begins = |window: &&[Token]| {
        inner(&window[0]) == "#[cfg(test)]"
            && inner(&window[1]) == "mod"
            && inner(&window[3]) == "{"
    };
    tokens.windows(4).find(begins).map_or(text.len() + 1, |window| window[0].at.start)
}

type Counts = BTreeMap<String, BTreeMap<Count, usize>>;

fn counts(sources: &[Source]) -> Counts {
    let mut counts = Counts::new();
    for source in sources {
        let area = counts.entry(area(&source.file).to_owned()).or_default();
        for count in Count::ALL {
            let of = source.findings.iter().filter(|finding| finding.count == count);
            *area.entry(count).or_default() += of.count();
        }
    }
    counts
}

/// The counts in xtask/words.toml; `None` if there is no such file yet.
fn blessed(root: &Path) -> Result<Option<Counts>, String> {
    let Ok(text) = std::fs::read_to_string(root.join(COUNTS)) else { return Ok(None) };
    let table: toml::Table = text.parse().map_err(|e| format!("{COUNTS}: {e}"))?;
    let of = |area: &toml::Value, count: Count| {
        let value = area.get(count.key()).and_then(toml::Value::as_integer).unwrap_or(0);
        (count, usize::try_from(value).unwrap_or(0))
    };
    let area = |(name, area): (&String, &toml::Value)| {
        (name.clone(), Count::ALL.map(|count| of(area, count)).into())
    };
    Ok(Some(table.iter().map(area).collect()))
}

pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let found = counts(&sources(root, &Words::read(root)?)?);
    let allowed = blessed(root)?.ok_or(format!("{COUNTS}: not there"))?;
    let (mut wrong, mut fell) = (vec![], false);
    for (area, counts) in &found {
        for (count, &found) in counts {
            let at_most = allowed.get(area).and_then(|of| of.get(count)).copied().unwrap_or(0);
            fell |= found < at_most;
            if found > at_most {
                wrong.push(format!(
                    "{area}: {found} {}, at most {at_most}\n  see docs/style-words.md and: cargo xtask \
                     words --list {area}",
                    count.key()
                ));
            }
        }
    }
    if fell {
        println!("counts have fallen: run cargo xtask words --bless");
    }
    Ok(wrong)
}

/// Lowers counts to the number of findings; never raises one.
pub fn bless(root: &Path) -> Result<Vec<String>, String> {
    let found = counts(&sources(root, &Words::read(root)?)?);
    let before = blessed(root)?;
    let mut text = String::from(
        "# Counts of `cargo xtask words`, which may only fall: `cargo xtask words --bless`.\n",
    );
    for (area, counts) in &found {
        text += &format!("\n[{area}]\n");
        for (count, &found) in counts {
            let at_most = before
                .as_ref()
                .map(|before| before.get(area).and_then(|of| of.get(count)).copied().unwrap_or(0));
            text += &format!("{} = {}\n", count.key(), found.min(at_most.unwrap_or(found)));
        }
    }
    std::fs::write(root.join(COUNTS), text).map_err(|e| format!("{COUNTS}: {e}"))?;
    check(root)
}

/// Prints every finding in the areas, or in all areas if none is given.
pub fn print_findings(root: &Path, areas: &[&str]) -> Result<Vec<String>, String> {
    let sources = sources_in(root, areas)?.1;
    for source in &sources {
        for Finding { count, line, phrase } in &source.findings {
            println!("{}:{line}: {}: {phrase}", source.file, count.key());
        }
    }
    for (area, counts) in counts(&sources) {
        let counts: Vec<_> = counts.iter().map(|(c, n)| format!("{n} {}", c.key())).collect();
        println!("{area}: {}", counts.join(", "));
    }
    Ok(vec![])
}

/// Prints how many comments outside tests give a reason.
pub fn print_reasons(root: &Path, areas: &[&str]) -> Result<Vec<String>, String> {
    #[derive(Default)]
    struct Figures {
        code: usize,
        comment: usize,
        blocks: usize,
        reasons: usize,
        reason_lines: usize,
    }
    let (words, sources) = sources_in(root, areas)?;
    let mut figures = BTreeMap::<_, Figures>::new();
    for source in &sources {
        let of = figures.entry(area(&source.file)).or_default();
        of.code += source.code_lines;
        for block in &source.blocks {
            of.blocks += 1;
            of.comment += block.line_count();
            if words.has_reason(block) {
                of.reasons += 1;
                of.reason_lines += block.line_count();
            }
        }
    }
    println!(
        "{:20} {:>7} {:>8} {:>7} {:>8} {:>6} {:>9} {:>9}",
        "", "code", "comment", "blocks", "reasons", "of", "lines of", "in 100 of"
    );
    println!(
        "{:20} {:>7} {:>8} {:>7} {:>8} {:>6} {:>9} {:>9}",
        "", "lines", "lines", "", "", "blocks", "reasons", "code"
    );
    let percent = |a: usize, b: usize| 100.0 * a as f64 / b.max(1) as f64;
    for (area, of) in figures.iter().filter(|(_, of)| of.code > 0) {
        println!(
            "{area:20} {:7} {:8} {:7} {:8} {:4.0} % {:9} {:9.1}",
            of.code,
            of.comment,
            of.blocks,
            of.reasons,
            percent(of.reasons, of.blocks),
            of.reason_lines,
            percent(of.reason_lines, of.code)
        );
    }
    Ok(vec![])
}

/// Prints N comment blocks chosen at random, for the arguments `N [--seed S] [--why] [AREA]...`.
/// With `--why`, only blocks outside tests that give a reason.
pub fn print_blocks(root: &Path, options: &[&str]) -> Result<Vec<String>, String> {
    let number = |text: Option<&&str>| {
        text.and_then(|text| text.parse::<u64>().ok())
            .ok_or("words --blocks N [--seed S]: no number")
    };
    let n = number(options.first())? as usize;
    let (mut random, mut reasons, mut areas) = (SplitMix64(1), false, vec![]);
    let mut options = options[1..].iter();
    while let Some(option) = options.next() {
        match *option {
            "--seed" => random = SplitMix64(number(options.next())?),
            "--why" => reasons = true,
            area => areas.push(area),
        }
    }
    let (words, sources) = sources_in(root, &areas)?;
    let mut blocks: Vec<(&str, &Block)> = vec![];
    for source in &sources {
        let tests = source.test_blocks.iter().filter(|_| !reasons);
        let wanted = source.blocks.iter().filter(|block| !reasons || words.has_reason(block));
        blocks.extend(wanted.chain(tests).map(|block| (source.file.as_str(), block)));
    }
    for drawn in 0..n.min(blocks.len()) {
        let left = blocks.len() - drawn;
        blocks.swap(drawn, drawn + below(random.draw(), left as u64) as usize);
        let (file, block) = blocks[drawn];
        println!("{file}:{}", block.first_line());
        for line in block.text.trim_end().lines() {
            println!("    {line}");
        }
    }
    Ok(vec![])
}

fn sources_in(root: &Path, areas: &[&str]) -> Result<(Words, Vec<Source>), String> {
    let words = Words::read(root)?;
    let mut sources = sources(root, &words)?;
    if let Some(unknown) =
        areas.iter().find(|name| !sources.iter().any(|source| area(&source.file) == **name))
    {
        return Err(format!("cannot find crate or folder {unknown:?}"));
    }
    sources.retain(|source| areas.is_empty() || areas.contains(&area(&source.file)));
    Ok((words, sources))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        let phrases = |text: &str| Phrases::new(&[text]).unwrap();
        Words {
            banned: phrases(r"\bbehind\b"),
            allowed: phrases(r"behind (a|the) ([a-z]+ )?NAT"),
            comments: phrases("^of "),
            reasons: phrases(r"\bbecause\b"),
            identifiers: ["told".to_owned()].into(),
        }
    }

    #[test]
    fn banned_words_are_found_across_lines_and_not_in_code() {
        let text = "# Behind\n\nRun it\nbehind *this*, `behind that`, behind a NAT,\nbehind the big \
                    NAT.\n\n```\nbehind\n```\n\n- [one](behind.md)\n- behind\n\n| a |\n|---|\n| x \
                    behind |\n";
        let found = words().in_block(&Block::document(text), false);
        let lines: Vec<_> = found.into_iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 4, 12, 16]);
    }

    #[test]
    fn names_are_checked_by_their_words_and_tests_as_sentences() {
        let text = "fn told_it(untold: u8) -> TheTold {}\n#[test]\nfn told() {}\n#[test]\n\
                    fn one_behind_another() {}\nlet behind = told_it;\n/// Of those.\n// Behind.\n";
        let source = source("crates/a/src/b.rs", text, &words()).unwrap();
        let found: Vec<_> =
            source.findings.iter().map(|found| (found.line, found.phrase.as_str())).collect();
        let names = [(1, "told_it"), (1, "TheTold"), (5, "one_behind_another")];
        assert_eq!(found[..3], names);
        assert_eq!(found[3..], [(7, "Of"), (8, "Behind")]);
    }

    #[test]
    fn names_have_words() {
        let of = |name| parts(name).join(" ");
        assert_eq!(of("said_port"), "said port");
        assert_eq!(of("TheTold"), "the told");
        assert_eq!(of("LAST_WORDS"), "last words");
        assert_eq!(of("HTTPServer"), "http server");
    }

    #[test]
    fn the_lists_are_there() {
        let words = Words::read(&crate::root()).unwrap();
        let found = words.in_block(&Block::document("A mistake is told with a way out."), false);
        assert_eq!(found.len(), 2);
        assert!(words.identifiers.contains("told"));
    }
}
