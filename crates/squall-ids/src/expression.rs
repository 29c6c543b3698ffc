//! Compiles the regular expressions in rules with PCRE2, with Suricata's match limits.

use pcre2::bytes::{Regex, RegexBuilder};
use squall_rules::Pcre;

// Rules match in the same way on all machines only if they use the same PCRE2. The crate links the
// system's library if it finds one, unless this variable is set at build time. .cargo/config.toml
// sets it, but Cargo ignores that file in builds started from another directory.
const _: () = assert!(
    matches!(option_env!("PCRE2_SYS_STATIC"), Some(value) if matches!(value.as_bytes(), b"1")),
    "this would use the PCRE2 of the system: build in the repository's folder, or set \
     PCRE2_SYS_STATIC=1 in the environment"
);

/// Suricata's `pcre.match-limit` and `pcre.match-limit-recursion`.
const LIMITS: &str = "(*LIMIT_MATCH=3500)(*LIMIT_DEPTH=1500)";

/// Compiles `pcre`.
///
/// # Errors
/// PCRE2's error message.
pub(crate) fn compile(pcre: &Pcre) -> Result<Regex, String> {
    let body = if pcre.dollar_end_only && !pcre.multiline {
        end_only(&pcre.pattern)
    } else {
        pcre.pattern.clone()
    };
    // Verbs must stay first: PCRE2 accepts them only at the start of a pattern.
    let verbs = leading_verbs(&body);
    let (verbs, body) = body.split_at(verbs);
    let ungreedy = if pcre.ungreedy { "(?U)" } else { "" };
    // \G and not \A: a retry starts at a later offset and is anchored there. The closing
    // parenthesis is on a line of its own: an extended expression may end in a comment.
    let pattern = match (pcre.anchored, pcre.extended) {
        (true, true) => format!("{LIMITS}{verbs}{ungreedy}\\G(?:{body}\n)"),
        (true, false) => format!("{LIMITS}{verbs}{ungreedy}\\G(?:{body})"),
        (false, _) => format!("{LIMITS}{verbs}{ungreedy}{body}"),
    };
    RegexBuilder::new()
        .caseless(pcre.caseless)
        .dotall(pcre.dotall)
        .multi_line(pcre.multiline)
        .extended(pcre.extended)
        .jit_if_available(true)
        .build(&pattern)
        .map_err(|error| format!("PCRE2 rejects /{}/: {error}", pcre.pattern))
}

/// Length of the leading verbs of `pattern`, such as `(*UTF)`.
fn leading_verbs(pattern: &str) -> usize {
    let mut length = 0;
    while let Some(verb) = pattern[length..].strip_prefix("(*")
        && verb.starts_with(|c: char| c.is_ascii_uppercase())
        && let Some(end) = verb.find(')')
    {
        length += 2 + end + 1;
    }
    length
}

/// Replaces each `$` by `\z`: the crate has no option for PCRE2_DOLLAR_ENDONLY.
fn end_only(pattern: &str) -> String {
    let mut made = String::with_capacity(pattern.len() + 4);
    let (mut in_class, mut chars) = (false, pattern.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                made.push(c);
                if let Some(next) = chars.next() {
                    made.push(next);
                }
            }
            '[' if !in_class => {
                in_class = true;
                made.push(c);
                // A bracket in first position is itself a member of the class.
                if chars.next_if_eq(&'^').is_some() {
                    made.push('^');
                }
                if chars.next_if_eq(&']').is_some() {
                    made.push(']');
                }
            }
            ']' if in_class => {
                in_class = false;
                made.push(c);
            }
            '$' if !in_class => made.push_str("\\z"),
            _ => made.push(c),
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pcre(pattern: &str) -> Pcre {
        Pcre { pattern: pattern.into(), ..Pcre::default() }
    }

    /// Reads the version from the linked library: the crate's pcre2::version() is a constant, and
    /// lags by a release.
    #[test]
    fn expressions_are_matched_by_the_pcre2_that_comes_with_its_crate() {
        // The version in upstream/include/pcre2.h of pcre2-sys 0.2.10 (see Cargo.lock). A newer
        // crate has another version.
        let regex = compile(&pcre("^(?(VERSION=10.46)this|another)$")).unwrap();
        assert!(regex.is_match(b"this").unwrap(), "another release: is it the system's?");
    }

    #[test]
    fn an_expression_is_of_octets_not_of_characters() {
        let regex = compile(&pcre(r"^\xff.\x80$")).unwrap();
        assert!(regex.is_match(b"\xff\xfe\x80").unwrap());
    }

    #[test]
    fn the_dollar_of_e_does_not_match_before_a_last_line_end() {
        assert!(compile(&pcre("a$")).unwrap().is_match(b"a\n").unwrap());
        let only = Pcre { dollar_end_only: true, ..pcre(r"[]$]\$a$") };
        let regex = compile(&only).unwrap();
        assert!(regex.is_match(b"$$a").unwrap() && !regex.is_match(b"$$a\n").unwrap());
    }

    #[test]
    fn an_anchored_expression_is_anchored_where_it_is_tried() {
        let regex =
            compile(&Pcre { anchored: true, extended: true, ..pcre("b | c # or") }).unwrap();
        assert!(!regex.is_match(b"ab").unwrap());
        assert_eq!(regex.find_at(b"ab", 1).unwrap().map(|found| found.start()), Some(1));
    }

    #[test]
    fn an_expression_that_takes_too_long_is_an_error_and_an_invalid_one_is_rejected() {
        let regex = compile(&pcre("(x+x+)+[yz]")).unwrap();
        assert!(regex.is_match(&[b'x'; 100]).is_err());
        assert!(compile(&pcre("a(b")).unwrap_err().contains("a(b"));
    }
}
