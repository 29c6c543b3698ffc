//! Reads rule sets from files and strings.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use squall_units::Cannot;

use crate::rule::{LineError, LineParser, is_action};
use crate::variables::shortened;
use crate::{EngineVersion, Place, Problem, Reason, Rule, RuleSet, Variables};

/// How to read rule files.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// Whether to read rules that are commented out with `#` as well. Other comments are still
    /// skipped.
    pub disabled: bool,
    /// Read rules as this engine does: rules that it does not load become problems. `None`: accept
    /// the rules of all engines, each in its own syntax.
    pub engine: Option<EngineVersion>,
}

/// Maximum depth of nested includes.
const MAX_INCLUDE_DEPTH: usize = 32;
/// Maximum number of lines of a Snort 3 rule that continues inside its parentheses without
/// backslashes.
const MAX_LINES: usize = 1000;

impl RuleSet {
    /// Reads the rules in `text`, as a single file without a name. Cannot fail: lines that are not
    /// rules become problems.
    ///
    /// ```
    /// use squall_rules::{RuleSet, Variables};
    ///
    /// let text = r#"alert tcp any any -> $HOME_NET 80 (msg:"x"; content:"ab|00|"; sid:1; rev:1;)"#;
    /// let set = RuleSet::parse(text, &Variables::standard());
    /// assert_eq!((set.rules.len(), set.problems.len()), (1, 0));
    /// ```
    pub fn parse(text: &str, variables: &Variables) -> RuleSet {
        Reader::default().parse(text, variables)
    }

    /// Reads rule files, all `*.rules` files in directories, and the files that these include.
    pub fn read(paths: &[impl AsRef<Path>], variables: &Variables) -> RuleSet {
        Reader::default().read(paths, variables)
    }
}

impl Reader {
    pub fn parse(&self, text: &str, variables: &Variables) -> RuleSet {
        let mut collector = Collector::default();
        collector.set.files.push(PathBuf::new());
        collector.lines(
            self,
            0,
            text,
            &mut variables.clone(),
            &mut |collector, place, _, target| {
                collector.refuse(
                    place,
                    Reason::Include,
                    format!("include {target}: only rules in files can include others"),
                );
            },
        );
        collector.finished()
    }

    pub fn read(&self, paths: &[impl AsRef<Path>], variables: &Variables) -> RuleSet {
        let mut collector = Collector::default();
        let mut variables = variables.clone();
        for path in paths {
            let path = path.as_ref();
            if path.is_dir() {
                for path in rules_of(path, &mut collector) {
                    self.file(&path, &mut variables, &mut collector, &mut vec![], None);
                }
            } else {
                self.file(path, &mut variables, &mut collector, &mut vec![], None);
            }
        }
        collector.finished()
    }

    /// Reads a file. `above`: the files whose includes led to this one; `included_at`: the position
    /// of the include line.
    fn file(
        &self,
        path: &Path,
        variables: &mut Variables,
        collector: &mut Collector,
        above: &mut Vec<PathBuf>,
        included_at: Option<Place>,
    ) {
        let known = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let refusal = if above.contains(&known) {
            Some(format!("{}: it includes itself", path.display()))
        } else if above.len() >= MAX_INCLUDE_DEPTH {
            Some(format!(
                "{}: includes are nested more than {MAX_INCLUDE_DEPTH} deep",
                path.display()
            ))
        } else {
            None
        };
        let text = match refusal {
            Some(refusal) => Err(refusal),
            None => octets(path).map_err(|error| Cannot::read(path, &error).to_string()),
        };
        let text = match text {
            Ok(text) => text,
            Err(refusal) => {
                let place = included_at.unwrap_or_else(|| collector.new_file(path));
                collector.refuse(place, Reason::Include, refusal);
                return;
            }
        };
        let place = collector.new_file(path);
        above.push(known);
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        let text = as_text(&text);
        collector.lines(
            self,
            place.file,
            &text,
            variables,
            &mut |collector, place, variables, target| {
                let mut target = target.to_owned();
                // Snort's configuration uses variables in paths: `include $RULE_PATH/web.rules`.
                for (name, value) in variables
                    .iter()
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect::<Vec<_>>()
                {
                    if target.contains(&format!("${name}/")) {
                        target = target.replacen(&format!("${name}/"), &format!("{value}/"), 1);
                    }
                }
                self.file(&directory.join(target), variables, collector, above, Some(place));
            },
        );
        above.pop();
    }
}

/// Maximum size of a rule file: a file such as `/dev/zero` never ends.
const MAX_OCTETS: u64 = 256 << 20;

fn octets(path: &Path) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    File::open(path)?.take(MAX_OCTETS + 1).read_to_end(&mut octets)?;
    match octets.len() as u64 > MAX_OCTETS {
        true => Err(io::Error::other(format!("it is larger than {} MiB", MAX_OCTETS >> 20))),
        false => Ok(octets),
    }
}

/// Decodes the text of a rule file. Some editors on Windows write UTF-16 with a byte order mark.
/// Old rules have messages in Latin-1; invalid UTF-8 in them is replaced, because messages do not
/// affect matching.
fn as_text(octets: &[u8]) -> Cow<'_, str> {
    let wide = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = rest.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect::<Vec<_>>();
        Cow::Owned(String::from_utf16_lossy(&units))
    };
    match octets {
        [0xFF, 0xFE, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => wide(rest, u16::from_be_bytes),
        _ => String::from_utf8_lossy(octets),
    }
}

/// The `*.rules` files of a directory, sorted by name.
fn rules_of(directory: &Path, collector: &mut Collector) -> Vec<PathBuf> {
    match std::fs::read_dir(directory) {
        Ok(entries) => {
            let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
            paths.retain(|path| path.extension().is_some_and(|extension| extension == "rules"));
            paths.sort();
            paths
        }
        Err(error) => {
            let place = collector.new_file(directory);
            collector.refuse(place, Reason::Include, Cannot::read(directory, &error).to_string());
            vec![]
        }
    }
}

#[derive(Default)]
struct Collector {
    set: RuleSet,
    /// Indices into `set.rules` by gid and sid.
    known: HashMap<(u32, u32), usize>,
    /// Indices of rules that were replaced by a newer revision.
    replaced: Vec<usize>,
}

/// Called for each `include` with its position and target.
type Include<'a> = dyn FnMut(&mut Collector, Place, &mut Variables, &str) + 'a;

impl Collector {
    fn new_file(&mut self, path: &Path) -> Place {
        self.set.files.push(path.to_owned());
        Place { file: (self.set.files.len() - 1) as u32, line: 0 }
    }

    fn refuse(&mut self, place: Place, reason: Reason, text: String) {
        self.set.problems.push(Problem { place, column: None, sid: None, reason, text });
    }

    fn lines(
        &mut self,
        reader: &Reader,
        file: u32,
        text: &str,
        variables: &mut Variables,
        include: &mut Include<'_>,
    ) {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut lines = Lines { rest: text, number: 0 };
        // The resolver and its cache are reused until variables change, which is rare between
        // rules.
        let mut resolving = variables.clone();
        'resolving: loop {
            let snapshot = resolving;
            let mut parser = LineParser::new(&snapshot, reader.engine);
            while let Some((number, line)) = lines.next_logical() {
                let place = Place { file, line: number };
                let mut line = line;
                let mut trimmed = line.trim();
                let mut disabled = false;
                if trimmed.is_empty() {
                    continue;
                }
                if trimmed.starts_with('#') {
                    let inside =
                        trimmed.trim_start_matches(|c: char| c == '#' || c.is_whitespace());
                    if !reader.disabled || !looks_like_a_rule(inside) {
                        continue;
                    }
                    line = inside.to_owned().into();
                    trimmed = line.trim();
                    disabled = true;
                }
                let word = trimmed.split_whitespace().next().unwrap_or("");
                if matches!(word, "include" | "include:") {
                    let target = trimmed[word.len()..].trim().trim_matches(['"', '\'']);
                    include(self, place, variables, target);
                    resolving = variables.clone();
                    continue 'resolving;
                }
                if variables.set_from_line(trimmed) {
                    resolving = variables.clone();
                    continue 'resolving;
                }
                match parser.rule(trimmed) {
                    Ok(mut rule) => {
                        rule.place = place;
                        rule.disabled = disabled;
                        self.add(rule);
                    }
                    // This is a comment that only resembles a rule.
                    Err(_) if disabled => {}
                    Err(refused) => {
                        let column = refused.at.map(|at| trimmed[..at].chars().count() as u32 + 1);
                        let LineError { reason, sid, text, .. } = refused;
                        self.set.problems.push(Problem { place, column, sid, reason, text });
                    }
                }
            }
            return;
        }
    }

    fn add(&mut self, rule: Rule) {
        let key = (rule.gid, rule.sid);
        let index = self.set.rules.len();
        if let Some(&before) = self.known.get(&key) {
            let old = &self.set.rules[before];
            if rule.rev <= old.rev {
                let text = format!(
                    "sid {} rev {}: line {} of {} has rev {} and is used instead",
                    rule.sid,
                    rule.rev,
                    old.place.line,
                    self.set.files[old.place.file as usize].display(),
                    old.rev
                );
                let sid = Some(rule.sid);
                let problem = Problem {
                    place: rule.place,
                    column: None,
                    sid,
                    reason: Reason::Duplicate,
                    text,
                };
                self.set.problems.push(problem);
                return;
            }
            let text = format!(
                "sid {} rev {}: rev {} comes later and is used instead",
                old.sid, old.rev, rule.rev
            );
            let sid = Some(old.sid);
            let problem =
                Problem { place: old.place, column: None, sid, reason: Reason::Duplicate, text };
            self.set.problems.push(problem);
            self.replaced.push(before);
        }
        self.known.insert(key, index);
        self.set.rules.push(rule);
    }

    fn finished(mut self) -> RuleSet {
        if !self.replaced.is_empty() {
            self.replaced.sort_unstable();
            let mut index = 0;
            self.set.rules.retain(|_| {
                index += 1;
                self.replaced.binary_search(&(index - 1)).is_err()
            });
        }
        self.set
    }
}

fn looks_like_a_rule(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or("");
    is_action(word) && text.contains('(') && text.contains("sid:")
}

/// Iterates over lines, and joins continued ones.
struct Lines<'a> {
    rest: &'a str,
    /// Number of the line before `rest`.
    number: u32,
}

type Line<'a> = std::borrow::Cow<'a, str>;

impl<'a> Lines<'a> {
    fn next_line(&mut self) -> Option<&'a str> {
        if self.rest.is_empty() {
            return None;
        }
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        self.number = self.number.saturating_add(1);
        Some(line.strip_suffix('\r').unwrap_or(line))
    }

    /// The next line joined with its continuation lines, and the number of its first line.
    fn next_logical(&mut self) -> Option<(u32, Line<'a>)> {
        let line = self.next_line()?;
        let number = self.number;
        if let Some(start) = line.trim_end().strip_suffix('\\') {
            let mut joined = start.to_owned();
            while let Some(line) = self.next_line() {
                let Some(more) = line.trim_end().strip_suffix('\\') else {
                    joined.push_str(line);
                    break;
                };
                joined.push_str(more);
            }
            return Some((number, joined.into()));
        }
        let joined = self.parenthesized(line);
        Some((number, joined.map_or(line.into(), Into::into)))
    }

    /// Joins the lines of a Snort 3 rule, which ends where its parenthesis closes. Returns `None`
    /// if another rule begins before that.
    fn parenthesized(&mut self, first: &'a str) -> Option<String> {
        let begins = |line: &str| is_action(line.split_whitespace().next().unwrap_or(""));
        if first.trim_end().ends_with(')') || !begins(first) || !first.contains('(') {
            return None;
        }
        let mut ahead = Lines { rest: self.rest, number: self.number };
        let mut joined = without_comment(first.trim_end()).to_owned();
        for _ in 0..MAX_LINES {
            let line = ahead.next_line()?.trim();
            if begins(line) {
                return None;
            }
            if line.starts_with('#') {
                continue;
            }
            joined.push(' ');
            joined.push_str(without_comment(line));
            if line.ends_with(')') {
                *self = ahead;
                return Some(joined);
            }
        }
        None
    }
}

/// Removes a comment after the last option of a line. A `;` followed by `#` may be inside quotes,
/// so a line with a later quote is returned unchanged.
fn without_comment(line: &str) -> &str {
    match line.rfind("; #") {
        Some(at) if !line[at..].contains('"') => &line[..=at],
        _ => line,
    }
}

/// Quotes and shortens `text` for use in a message.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text))
}
