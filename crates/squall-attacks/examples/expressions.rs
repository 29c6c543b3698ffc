//! Reads the `pcre` options of rule files, generates a text for each, and checks it with PCRE2.
//!
//!     cargo run -p squall-attacks --example expressions -- FILE...

use std::time::Instant;

use squall_attacks::regex::{Choices, Constraints, Expression, Flags};

fn main() {
    let mut counts = [0_usize; 4];
    let mut seconds = 0.0;
    for path in std::env::args().skip(1) {
        let text = match std::fs::read(&path) {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => return eprintln!("{path}: {error}"),
        };
        for (pattern, letters) in text.lines().flat_map(expressions) {
            let begin = Instant::now();
            let outcome = try_one(&pattern, &letters);
            seconds += begin.elapsed().as_secs_f64();
            counts[outcome as usize] += 1;
            if outcome != Outcome::Matches {
                println!("{outcome:?}\t/{pattern}/{letters}");
            }
        }
    }
    let [matches, no_match, no_text, unread] = counts;
    let all = matches + no_match + no_text + unread;
    println!(
        "{all} expressions: {matches} match, {no_match} do not, {no_text} without a text, \
         {unread} unread; {seconds:.3} s with PCRE2"
    );
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Matches,
    DoesNot,
    NoText,
    Unread,
}

fn try_one(pattern: &str, letters: &str) -> Outcome {
    let has = |letter| letters.contains(letter);
    let flags = Flags {
        caseless: has('i'),
        dotall: has('s'),
        multiline: has('m'),
        extended: has('x'),
        anchored: has('A'),
        dollar_end_only: has('E'),
        ungreedy: has('G'),
    };
    let expression = match Expression::parse(pattern, flags) {
        Ok(expression) => expression,
        Err(error) => {
            println!("{error}");
            return Outcome::Unread;
        }
    };
    let Some(sampled) = expression.sample(&Choices::plain(), &Constraints::default()) else {
        return Outcome::NoText;
    };
    let text = sampled.bytes();
    let real = pcre2::bytes::RegexBuilder::new()
        .caseless(flags.caseless)
        .dotall(flags.dotall)
        .multi_line(flags.multiline)
        .extended(flags.extended)
        .build(pattern);
    match real.map(|real| real.is_match(&text)) {
        Ok(Ok(true)) => Outcome::Matches,
        Ok(found) => {
            println!("{found:?} \"{}\"", text.escape_ascii());
            Outcome::DoesNot
        }
        Err(error) => {
            println!("{error}");
            Outcome::DoesNot
        }
    }
}

/// The expression and the flags of each `pcre:"/.../..."` in a line.
fn expressions(line: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find("pcre:") {
        rest = rest[at + 5..].trim_start_matches([' ', '!']);
        let Some(quoted) = rest.strip_prefix('"') else { continue };
        let mut escaped = false;
        let end = quoted.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let Some(end) = end else { break };
        let inner = &quoted[..end];
        rest = &quoted[end..];
        if let (Some(inner), Some(last)) = (inner.strip_prefix('/'), inner.rfind('/')) {
            found.push((inner[..last - 1].to_owned(), inner[last..].to_owned()));
        }
    }
    found
}
