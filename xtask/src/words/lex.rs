//! Splits source text into comments, docstrings and names; all other tokens are `Code`.

use std::ops::Range;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    Rust,
    Python,
    /// TypeScript and JavaScript.
    TypeScript,
    Svelte,
    Css,
    C,
    Shell,
}

impl Language {
    /// The language of `file`, by its suffix, or otherwise by the first line of its text.
    pub fn of(file: &str, text: &str) -> Option<Self> {
        let name = file.rsplit('/').next().unwrap_or(file);
        match name.rsplit_once('.').map(|(_, suffix)| suffix) {
            Some("rs") => Some(Self::Rust),
            Some("py" | "pyi") => Some(Self::Python),
            Some("ts" | "js" | "mjs") => Some(Self::TypeScript),
            Some("svelte") => Some(Self::Svelte),
            Some("css") => Some(Self::Css),
            Some("c" | "h") => Some(Self::C),
            Some("sh") => Some(Self::Shell),
            Some(_) => None,
            None => {
                let first = text.lines().next().unwrap_or("");
                let runs = |with: &str| first.starts_with("#!") && first.contains(with);
                match () {
                    () if runs("python") => Some(Self::Python),
                    () if runs("bash") || runs("/sh") => Some(Self::Shell),
                    () => None,
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// From `//`, `/*`, `#` or `<!--` to the end of the comment.
    Comment,
    /// A Python string that is a statement.
    Docstring,
    Name,
    /// A complete Rust attribute, `#[...]`.
    Attribute,
    Code,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    pub kind: Kind,
    pub at: Range<usize>,
}

pub fn lex(text: &str, language: Language) -> Vec<Token> {
    let mut lexer = Lexer { text, at: 0, tokens: vec![] };
    match language {
        Language::Rust => lexer.rust(),
        Language::Python => lexer.python(),
        Language::TypeScript => lexer.script(false),
        Language::Svelte => lexer.svelte(),
        Language::Css => lexer.css(text.len()),
        Language::C => lexer.c(),
        Language::Shell => lexer.shell(),
    }
    lexer.tokens
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    tokens: Vec<Token>,
}

fn starts_name(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn continues_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn sees(&self, prefix: &str) -> bool {
        self.rest().starts_with(prefix)
    }

    fn push(&mut self, kind: Kind, length: usize) {
        self.tokens.push(Token { kind, at: self.at..self.at + length });
        self.at += length;
    }

    /// The length of the text up to and including `end`; if there is no `end`, of the rest of the
    /// text.
    fn through(&self, from: usize, end: &str) -> usize {
        let rest = self.rest();
        rest[from..].find(end).map_or(rest.len(), |found| from + found + end.len())
    }

    fn line(&self) -> usize {
        self.rest().find('\n').unwrap_or(self.rest().len())
    }

    /// The length of a string with an opening delimiter of `open` octets, up to an unescaped
    /// `quote`.
    fn string(&self, open: usize, quote: &str) -> usize {
        let rest = self.rest();
        let mut at = open;
        while at < rest.len() {
            if rest[at..].starts_with(quote) {
                return at + quote.len();
            }
            let c = rest[at..].chars().next().map_or(1, char::len_utf8);
            at += c;
            if &rest[at - c..at] == "\\" {
                at += rest[at..].chars().next().map_or(0, char::len_utf8);
            }
        }
        rest.len()
    }

    fn name(&self) -> usize {
        self.rest().find(|c| !continues_name(c)).unwrap_or(self.rest().len())
    }

    /// A number, or a character that begins no other token.
    fn other(&mut self, c: char) {
        let length = if c.is_ascii_digit() { self.name() } else { c.len_utf8() };
        self.push(Kind::Code, length);
    }

    fn rust(&mut self) {
        while let Some(c) = self.peek() {
            if c.is_whitespace() {
                self.at += c.len_utf8();
            } else if self.sees("//") {
                self.push(Kind::Comment, self.line());
            } else if self.sees("/*") {
                self.push(Kind::Comment, self.nested());
            } else if let Some(length) = self.raw_string() {
                self.push(Kind::Code, length);
            } else if self.sees("\"") {
                self.push(Kind::Code, self.string(1, "\""));
            } else if self.sees("b\"") || self.sees("c\"") {
                self.push(Kind::Code, self.string(2, "\""));
            } else if self.sees("b'") {
                self.push(Kind::Code, self.string(2, "'"));
            } else if c == '\'' {
                self.quote();
            } else if self.sees("#[") || self.sees("#![") {
                self.push(Kind::Attribute, self.attribute());
            } else if self.sees("r#") {
                // A raw identifier: raw strings were matched before.
                self.push(Kind::Code, 2);
            } else if starts_name(c) {
                self.push(Kind::Name, self.name());
            } else {
                self.other(c);
            }
        }
    }

    /// A Rust block comment; they can be nested.
    fn nested(&self) -> usize {
        let (rest, mut at, mut depth) = (self.rest(), 0, 0);
        while at < rest.len() {
            if rest[at..].starts_with("/*") {
                (depth, at) = (depth + 1, at + 2);
            } else if rest[at..].starts_with("*/") {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            } else {
                at += rest[at..].chars().next().map_or(1, char::len_utf8);
            }
        }
        rest.len()
    }

    fn raw_string(&self) -> Option<usize> {
        let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
            self.sees(prefix) && self.rest()[prefix.len()..].starts_with(['"', '#'])
        })?;
        let after = &self.rest()[prefix.len()..];
        let hashes = after.find(|c| c != '#')?;
        after[hashes..]
            .starts_with('"')
            .then(|| self.through(prefix.len() + hashes + 1, &format!("\"{}", "#".repeat(hashes))))
    }

    /// A character literal, or a lifetime or label.
    fn quote(&mut self) {
        let mut chars = self.rest()[1..].chars();
        let (first, second) = (chars.next(), chars.next());
        if first == Some('\\') || second == Some('\'') {
            self.push(Kind::Code, self.string(1, "'"));
        } else {
            self.push(Kind::Code, 1);
        }
    }

    fn attribute(&self) -> usize {
        let (rest, mut at, mut depth) = (self.rest(), 0, 0);
        while at < rest.len() {
            let inner = Lexer { text: self.text, at: self.at + at, tokens: vec![] };
            let length = match rest.as_bytes()[at] {
                b'"' => inner.string(1, "\""),
                _ => inner.peek().map_or(1, char::len_utf8),
            };
            match rest.as_bytes()[at] {
                b'[' => depth += 1,
                b']' if depth == 1 => return at + 1,
                b']' => depth -= 1,
                _ => {}
            }
            at += length;
        }
        rest.len()
    }

    fn python(&mut self) {
        let (mut depth, mut begins) = (0_usize, true);
        while let Some(c) = self.peek() {
            if c == '\n' {
                begins |= depth == 0;
                self.at += 1;
            } else if self.sees("\\\n") {
                self.at += 2;
            } else if c.is_whitespace() {
                self.at += c.len_utf8();
            } else if c == '#' {
                self.push(Kind::Comment, self.line());
            } else if let Some(length) = self.python_string() {
                let kind = if begins { Kind::Docstring } else { Kind::Code };
                self.push(kind, length);
                begins = false;
            } else {
                begins = false;
                match c {
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if starts_name(c) { self.push(Kind::Name, self.name()) } else { self.other(c) }
            }
        }
    }

    fn python_string(&self) -> Option<usize> {
        let prefix = self.rest().find(|c: char| !"rRbBuUfF".contains(c)).filter(|&n| n <= 2)?;
        let quote = ["\"\"\"", "'''", "\"", "'"]
            .into_iter()
            .find(|quote| self.rest()[prefix..].starts_with(quote))?;
        Some(self.string(prefix + quote.len(), quote))
    }

    /// TypeScript; with `embedded`, up to the brace that closes the surrounding expression.
    fn script(&mut self, embedded: bool) {
        let mut depth = 0_usize;
        while let Some(c) = self.peek() {
            if c.is_whitespace() {
                self.at += c.len_utf8();
            } else if self.sees("//") {
                self.push(Kind::Comment, self.line());
            } else if self.sees("/*") {
                self.push(Kind::Comment, self.through(2, "*/"));
            } else if c == '"' || c == '\'' {
                self.push(Kind::Code, self.string(1, &c.to_string()));
            } else if c == '`' {
                self.template();
            } else if c == '/' && self.regex_may_start() {
                self.push(Kind::Code, self.regex());
            } else if c == '}' && embedded && depth == 0 {
                return;
            } else if starts_name(c) || c == '$' {
                let dollars = self.rest().find(|c| c != '$').unwrap_or(1);
                self.at += dollars;
                let length = self.name();
                self.push(if length == 0 { Kind::Code } else { Kind::Name }, length);
            } else {
                match c {
                    '{' => depth += 1,
                    '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                self.other(c);
            }
        }
    }

    /// A template string. Its text is code; the expressions in it are parsed.
    fn template(&mut self) {
        self.push(Kind::Code, 1);
        while let Some(c) = self.peek() {
            if self.sees("${") {
                self.push(Kind::Code, 2);
                self.script(true);
            } else if c == '\\' {
                self.at += 1;
                self.at += self.peek().map_or(0, char::len_utf8);
            } else {
                self.at += c.len_utf8();
                if c == '`' {
                    return;
                }
            }
        }
    }

    /// Whether a slash starts a regular expression. After a value it is a division.
    fn regex_may_start(&self) -> bool {
        let Some(last) = self.tokens.iter().rev().find(|token| token.kind != Kind::Comment) else {
            return true;
        };
        let text = &self.text[last.at.clone()];
        match last.kind {
            Kind::Name => ["return", "typeof", "case", "in", "of"].contains(&text),
            _ => !text.ends_with(|c: char| c.is_alphanumeric() || ")]}\"'`".contains(c)),
        }
    }

    fn regex(&self) -> usize {
        let (mut class, mut escaped) = (false, false);
        for (at, c) in self.rest().char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '[' => class = true,
                ']' => class = false,
                '/' if !class => return at + 1,
                '\n' => return at,
                _ => {}
            }
        }
        self.rest().len()
    }

    /// Svelte: script, style, and the expressions and comments in the markup.
    fn svelte(&mut self) {
        while let Some(c) = self.peek() {
            if self.sees("<!--") {
                self.push(Kind::Comment, self.through(4, "-->"));
            } else if self.sees("<script") {
                self.push(Kind::Code, self.through(0, ">"));
                let end = self.at + self.through(0, "</script").saturating_sub("</script".len());
                let inner = lex(&self.text[self.at..end], Language::TypeScript);
                let moved = |token: Token| Token {
                    at: token.at.start + self.at..token.at.end + self.at,
                    ..token
                };
                self.tokens.extend(inner.into_iter().map(moved));
                self.at = end;
            } else if self.sees("<style") {
                self.push(Kind::Code, self.through(0, ">"));
                self.css(self.at + self.through(0, "</style").saturating_sub("</style".len()));
            } else if c == '{' {
                self.push(Kind::Code, 1);
                if self.peek().is_some_and(|c| "#:/@".contains(c)) {
                    self.push(Kind::Code, 1);
                }
                self.script(true);
            } else if c.is_whitespace() {
                self.at += c.len_utf8();
            } else {
                self.push(Kind::Code, c.len_utf8());
            }
        }
    }

    fn css(&mut self, end: usize) {
        while self.at < end {
            if self.sees("/*") {
                self.push(Kind::Comment, self.through(2, "*/"));
            } else {
                let c = self.peek().unwrap_or(' ');
                self.at += c.len_utf8();
                if !c.is_whitespace() {
                    self.tokens
                        .push(Token { kind: Kind::Code, at: self.at - c.len_utf8()..self.at });
                }
            }
        }
    }

    fn c(&mut self) {
        while let Some(c) = self.peek() {
            if c.is_whitespace() {
                self.at += c.len_utf8();
            } else if self.sees("//") {
                self.push(Kind::Comment, self.line());
            } else if self.sees("/*") {
                self.push(Kind::Comment, self.through(2, "*/"));
            } else if c == '"' || c == '\'' {
                self.push(Kind::Code, self.string(1, &c.to_string()));
            } else if starts_name(c) {
                self.push(Kind::Name, self.name());
            } else {
                self.other(c);
            }
        }
    }

    /// Shell: comments on lines of their own, and names that a line defines.
    fn shell(&mut self) {
        for line in self.text.split_inclusive('\n') {
            let (start, inner) = (self.at, line.trim());
            self.at += line.len() - line.trim_start().len();
            if inner.starts_with('#') && !inner.starts_with("#!") {
                self.push(Kind::Comment, inner.len());
            } else if !inner.is_empty() {
                if let Some(plain) = self.rest().strip_prefix("local ") {
                    self.at = self.text.len() - plain.len();
                }
                let length = self.name();
                let defines = self.rest()[length..].starts_with(['=', '(']);
                let kind = if length > 0 && defines { Kind::Name } else { Kind::Code };
                self.push(kind, length);
            }
            self.at = start + line.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: Kind, text: &str, language: Language) -> Vec<&str> {
        let tokens = lex(text, language);
        tokens.into_iter().filter(|token| token.kind == kind).map(|token| &text[token.at]).collect()
    }

    #[test]
    fn comments_of_rust_are_not_in_its_strings() {
        let text = r####"/* a /* b */ c */ let x = "// no"; // yes
            let y = r#"/* " */ no"#; let z = br"\"; // two
            let c = ('"', '\'', b'"', '\u{2f}'); fn f<'a>(_: &'a str) {} // three
            let d = "\"// no"; let r#type = 1; //! four"####;
        let found = of(Kind::Comment, text, Language::Rust);
        assert_eq!(found, ["/* a /* b */ c */", "// yes", "// two", "// three", "//! four"]);
        assert!(of(Kind::Name, text, Language::Rust).contains(&"type"));
    }

    #[test]
    fn an_attribute_of_rust_is_one_token() {
        let text = "#[serde(rename = \"a]\")] struct A { b: u8 } #[test] fn c() {}";
        assert_eq!(of(Kind::Attribute, text, Language::Rust).len(), 2);
        let names = ["struct", "A", "b", "u8", "fn", "c"];
        assert_eq!(of(Kind::Name, text, Language::Rust), names);
    }

    #[test]
    fn docstrings_are_strings_that_stand_alone() {
        let text = "\"\"\"one\"\"\"\ndef f():\n    r'''two # no'''\n    x = \"\"\"no\"\"\"  # yes\n    \
                    g(\n        \"no\",\n    )\n    y = \\\n        'no'\n";
        assert_eq!(
            of(Kind::Docstring, text, Language::Python),
            ["\"\"\"one\"\"\"", "r'''two # no'''"]
        );
        assert_eq!(of(Kind::Comment, text, Language::Python), ["# yes"]);
    }

    #[test]
    fn slashes_of_typescript_divide_match_and_comment() {
        let text = "const a = /[/\"]`/.test(b) // one\nconst c = `//${d / 2 /* two */}//` + e / f // three\n\
                    return /'/ // four";
        let found = of(Kind::Comment, text, Language::TypeScript);
        assert_eq!(found, ["// one", "/* two */", "// three", "// four"]);
    }

    #[test]
    fn svelte_is_script_markup_and_style() {
        let text = "<script lang=\"ts\">\n  // one\n  let a = '}'\n</script>\n<!-- two -->\n<p>don't // no\n\
                    {#if a}{'}' + b /* three */}{/if}</p>\n<style>/* four */ p { background: url(//no) }</style>";
        let found = of(Kind::Comment, text, Language::Svelte);
        assert_eq!(found, ["// one", "<!-- two -->", "/* three */", "/* four */"]);
        assert!(of(Kind::Name, text, Language::Svelte).contains(&"b"));
    }

    #[test]
    fn a_shell_script_has_comments_and_definitions() {
        let text = "#!/bin/bash\n# one\nf() { echo told; } # no\n  local g=1\n";
        assert_eq!(of(Kind::Comment, text, Language::Shell), ["# one"]);
        assert_eq!(of(Kind::Name, text, Language::Shell), ["f", "g"]);
    }
}
