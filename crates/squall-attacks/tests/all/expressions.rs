//! Compares the sampler with PCRE2.

use pcre2::bytes::{Regex, RegexBuilder};
use squall_attacks::regex::{ByteSet, Choices, Constraints, Expression, Flags, Held, Sampled};
use squall_units::SplitMix64;

/// One expression per line: features of PCRE2's syntax (pcre2pattern(3)), and expressions like
/// those in rules.
const EXPRESSIONS: &str = r#"
a
abc
a|b
foo|ba|qux
(a|b)c
(a)(b)(c)
a?
a*b
a+b
a{3}
a{2,}
a{2,4}b
a{0}b
x{,3}y
x{a}
x{
x{1,2,3}
x{1,2}+y
(ab){3}
(?:ab|cd){5}
(a{10}){10}
(\w{3}-){4}z
a*?b
a+?b
a??b
a{2,5}?b
a*+b
a++b
a?+b
[a-z]++[0-9]
\d++x
(?>a+)b
(?>\d+)[a-f]
(?>ab|a)c
.
.*x
.+
.{10}
[abc]
[^abc]
[a-f0-9]{8}
[^\r\n]{20}
[]a]
[^]a]
[a-]
[-a]
[a\-z]
[\w-]+
[\d.-]{4}
[\d\-z]+
[\x00-\x1f]{4}
[\x80-\xff]{6}
[\b]
[\n\r\t\f\e\a]
[\Qa-z]\E]
\Qa.b*c\E
\Qab\E+
[[:alpha:]]{3}
[[:^alpha:]]{3}
[[:digit:][:punct:]]{6}
[[:xdigit:]]{4}
[[:space:]]x
[[:upper:]][[:lower:]]
[[:word:]]+[[:cntrl:]]
[[:blank:]][[:graph:]][[:print:]]
[[:alnum:]][[:ascii:]]
[[]
[[:x]
[a[:]b]
[]-a]
\x41\x42
\x{41}\x{7e}
\x4
\o{101}
\101
\0
\08
\012
\18
\377
\cA\cz\c[
\t\n\r\f\a\e
\d\D\w\W\s\S
\h\H\v\V
\N{4}
\N+x
\Rx
\R{2}
\X
\C
\p{L}\p{Lu}\p{Ll}
\pN\PN
\p{^L}
\p{P}\p{S}
\p{Nd}\p{Zs}
[\p{L}\d]{3}
\.\*\+\?\(\)\[\]\{\}\|\^\$\\
\/\:\;\'\""\ 
a\/b
^a
^abc$
^$
^\s*$
a$
\Aabc\z
\Aabc\Z
\Gabc
(?m)^a$
(?m)^GET\s.*$
(?m)a$\nb
(?m)a\n^b
(?s)a.b
(?-s)a.b
(?i)abc
(?i:abc)d
a(?i)b|c
(?i)a(?-i)b
(?i)[a-z]+[A-F]
(?i)\x41
(?im)^user\s+
(?x) a b # comment
(?x)a\ b [ c]
(?xx)[ a b ]
(?x) a {2} + b
(?U)a+b
(?n)(a)(?<x>b)\k<x>
(?^)a
(?s-i:.a)
(?#comment)a
a(?#b)+c
\bfoo\b
foo\b
\bfoo
\Bfoo
foo\B
\b\w+\b \b\w+\b
a\b-
-\ba
[^\w]\bfoo
(a)\1
(.)\1
(\w+)-\1
(\w{4})=\1\1
(['x])[^'x]*\1
(?i)(a)\1
(?<n>ab)\k<n>
(?P<n>ab)(?P=n)
(?'n'ab)\k'n'\k{n}
(ab)\g1
(ab)\g{1}
(a)(b)\g{-1}\g{-2}
(?<n>..)\g{n}
(a)|b\1?
(a)?b(?(1)c|d)
(?:(a)|b)(?(1)x|y)
(?<q>')?x(?(<q>)')
(?(?=a)ab|cd)
(?(?!a)cd|ab)
(?(DEFINE)(?<byte>\d{1,3}))(?&byte)\.(?&byte)
(?<ip>\d+)\.(?P>ip)
(\d)(?1)(?1)
((a|b)c)(?2)\g<1>
(x)(?-1)
(?+1)(y)
\((?:[^()]|(?R))*\)
a(?R)?b
(?|(a)|(b))\1
(?|(a)(b)|(c))(d)\3
(?=a)a
(?=abc)\w+
(?=.*\d)[a-z0-9]{4}
(?=[a-f]+\d)\w{6}
foo(?=bar)
foo(?=bar)\w+
foo(?!bar)
foo(?!bar)\w{3}
(?!foo)\w{3}
(?!\n)\s
^(?!GET|POST)[A-Z]+\s
^(?!\d{4}|[a-f]{4})[a-f0-9]{4}$
(?<=foo)bar
(?<=a|bc)d
(?<!foo)bar
(?<!a)b
(?<!\d)\d{3}(?!\d)
(?<=\s)x(?=\s)
(?<=^|,)x(?=,|$)
(?<=(?<!a)b)c
(?!$)
(?!.*bad)good\w{5}
((?!end).){5}end
^((?!\x00).)+\x00
(?=(a+))a*b\1
(?=(\w))\1x
a\Kb
foo\Kbar(?=baz)
(*UTF)a
(*UCP)\w
(*LIMIT_MATCH=1000)a
(*LF)(*BSR_ANYCRLF)a
a(*COMMIT)b
a(*PRUNE)b
a(*F)|b
a(*FAIL)|c
a(*ACCEPT)b
a(*MARK:x)b
(*pla:ab)a
(*nla:ab)a
(*plb:a)b
(*negative_lookbehind:a)b
(*atomic:a+)b
(*positive_lookahead:x)x
(?C)a(?C1)b
(?:)
()
(|a)
(a|)b
(a||b)c
((((((a))))))
(?:a(?:b(?:c|d)|e)|f)g
(a*)*b
(a*)+b
(a|b*)*c
(?:a?){5}b
(?:){3}a
(a+|b+)*c{2}
(?:\w+\s){3}\w+
^USER\s[^\n]{100}
^PASS(?!\n)\s[^\n]{50}
^\w+\s+[^\n\s\?]*\.jsp
(?i)^Content-Type\x3a\s*(?=[av])(video\/x\-ms\-(w[vm]x|asf)|a(udio\/x\-ms\-w(m[av]|ax)|pplication\/x\-ms\-wm[zd]))
\x2f(?:index|home)\.(?:php|asp)\?(?:id|q)=\d{1,8}(?:&|$)
^.{4}(\x00\x00\x00\x00|.{12})
(?s)<script[^>]*>.*?eval\s*\(.*?<\/script>
(\w+)\s*=\s*new\s+Array.*?\1\[0\]
var\s+(?P<v>\w+)\s*=\s*unescape\(.*?(?P=v)\s*\+=\s*(?P=v)
[^\x20-\x7e\r\n]{3}
^(?:[0-9a-f]{2}:){5}[0-9a-f]{2}$
\xff\xd8.{2}Exif\x00{2}
^\d{1,3}(?:\.\d{1,3}){3}$
(?:%[0-9a-f]{2}){4}
=[A-Za-z0-9+\/]{16}={0,2}$
^[^\s]+\s+[^\s]+\s+HTTP\/1\.[01]\r\n
[^&=]+=[^&]*(?:&[^&=]+=[^&]*){2}
^\x16\x03[\x00-\x03].{2}\x01
(?<![a-z])exec(?![a-z])
"#;

fn expressions() -> impl Iterator<Item = &'static str> {
    EXPRESSIONS.lines().filter(|line| !line.is_empty())
}

fn real(pattern: &str) -> Regex {
    RegexBuilder::new().build(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"))
}

fn read(pattern: &str) -> Expression {
    Expression::parse(pattern, Flags::default())
        .unwrap_or_else(|error| panic!("{pattern}: {error}"))
}

/// The text between an octet that may precede it and one that may follow it. Also returns the start
/// of the match.
fn embedded(sampled: &Sampled) -> (Vec<u8>, usize) {
    let mut bytes: Vec<u8> = sampled.before.iter().take(1).collect();
    let begin = bytes.len();
    bytes.extend(sampled.bytes());
    bytes.extend(sampled.after.and(sampled.prolongs.not()).iter().take(1));
    (bytes, begin)
}

#[test]
fn every_text_matches_with_any_choices() {
    assert!(expressions().count() >= 200);
    let mut wrong = Vec::new();
    for pattern in expressions() {
        let (real, expression) = (real(pattern), read(pattern));
        let branches = expression.branches().min(20);
        let choices = (0..8)
            .map(Choices::varied)
            .chain((0..branches).map(|branch| Choices::branch(branch, branch)));
        for choices in choices.chain([Choices::plain()]) {
            let sampled = expression.sample(&choices, &Constraints::default());
            let Some(sampled) = sampled else {
                wrong.push(format!("{pattern}: no text with {choices:?}"));
                continue;
            };
            let text = sampled.bytes();
            if !real.is_match(&text).unwrap() {
                wrong.push(format!("{pattern}: \"{}\" with {choices:?}", text.escape_ascii()));
            }
            let (inside, begin) = embedded(&sampled);
            if real.find_at(&inside, begin).unwrap().is_none() {
                wrong.push(format!(
                    "{pattern}: \"{}\" around \"{}\"",
                    inside.escape_ascii(),
                    text.escape_ascii()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn any_octet_that_is_allowed_matches_as_well() {
    for pattern in expressions() {
        let looks =
            ["(?=", "(?!", "(?<=", "(?<!", "(*", "\\b", "\\B", "(?(", "++", "*+", "?+", "(?>"];
        if looks.iter().any(|look| pattern.contains(look)) {
            continue;
        }
        let (real, expression) = (real(pattern), read(pattern));
        let sampled = expression.sample(&Choices::seeded(1), &Constraints::default()).unwrap();
        let followed: Vec<usize> = sampled.text.iter().filter_map(|slot| slot.same_as).collect();
        for (at, slot) in sampled.text.iter().enumerate() {
            if slot.same_as.is_some() || followed.contains(&at) {
                continue;
            }
            for other in slot.allowed.iter() {
                let mut text = sampled.bytes();
                text[at] = other;
                assert!(
                    real.is_match(&text).unwrap(),
                    "{pattern}: \"{}\", octet {at}",
                    text.escape_ascii()
                );
            }
        }
    }
}

#[test]
fn every_branch_is_another_text() {
    let expression = read(r"^(GET|POST)\s\/(a|b|(c|d)x)$");
    assert_eq!(expression.branches(), 8);
    let mut texts: Vec<Vec<u8>> = (0..8)
        .map(|branch| {
            expression.sample(&Choices::branch(0, branch), &Constraints::default()).unwrap().bytes()
        })
        .collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), 8);
}

#[test]
fn a_text_contains_required_strings_where_they_fit() {
    let cases: &[(&str, &[&str])] = &[
        (r"^USER\s+[^\n]{20}", &["USER", "root"]),
        (r"foo=\w+", &["foo=bar"]),
        (r"^\w+\s.*?\.jsp", &["GET ", "/cgi-bin/", "evil.jsp"]),
        (r"<a\s.*?href=[^>]{30}>", &["id=1", "http://x/y"]),
        (r"(?:[a-z]+&)*x=\d+", &["abc&def&", "x=99"]),
        (r"(?i)content-length:\s*\d+", &["Content-Length: 42"]),
        (r"^.{4}(abc|.{12})", &["xyz"]),
        (r"a.{0,30}b.{0,30}c", &["one", "two"]),
        (r"(\w+)=1;\1\(", &["name=1;name("]),
        (r"x[^\r\n]{1024}", &["needle"]),
        (r"id=[0-9]+(?!\d)", &["id=123"]),
    ];
    for (pattern, wanted) in cases {
        let holds: Vec<Held<'_>> =
            wanted.iter().map(|text| Held { bytes: text.as_bytes(), ..Held::default() }).collect();
        let constraints = Constraints { holds: &holds, ..Constraints::default() };
        let sampled = read(pattern).sample(&Choices::plain(), &constraints);
        let sampled = sampled.unwrap_or_else(|| panic!("{pattern} with {wanted:?}: no text"));
        let text = sampled.bytes();
        assert!(real(pattern).is_match(&text).unwrap(), "{pattern}: \"{}\"", text.escape_ascii());
        for (range, held) in sampled.holds.iter().zip(*wanted) {
            assert_eq!(
                text[range.clone()],
                *held.as_bytes(),
                "{pattern}: \"{}\"",
                text.escape_ascii()
            );
        }
        assert_eq!(sampled.holds.len(), wanted.len());
    }
}

#[test]
fn required_strings_keep_their_distance() {
    let holds = [
        Held { bytes: b"AB", ..Held::default() },
        Held { bytes: b"CD", nocase: true, gap: Some((5, 9)) },
    ];
    let constraints = Constraints { holds: &holds, least: 20, most: 40, ..Constraints::default() };
    let sampled = read("^[^\\n]*$").sample(&Choices::plain(), &constraints).unwrap();
    let gap = sampled.holds[1].start - sampled.holds[0].end;
    assert!((5..=9).contains(&gap), "{gap}");
    assert!((20..=40).contains(&sampled.text.len()));
}

#[test]
fn lengths_are_kept_and_unfitting_ones_refused() {
    let sample = |pattern: &str, least: usize, most: usize| {
        let constraints = Constraints { least, most, ..Constraints::default() };
        read(pattern).sample(&Choices::plain(), &constraints).map(|sampled| sampled.text.len())
    };
    assert_eq!(sample(r"^\w+foo$", 10, 10), Some(10));
    assert_eq!(sample(r"^(?:ab)+$", 10, 10), Some(10));
    assert_eq!(sample(r"^\d{3}x*y*$", 100, 100), Some(100));
    assert_eq!(sample(r"^\d{3}\z", 4, 9), None);
    assert_eq!(sample(r"\d{30}", 0, 29), None);
}

#[test]
fn a_match_is_placed_on_the_canvas() {
    let canvas: Vec<ByteSet> =
        b"GET /cgi-bin/foo.cgi".iter().map(|byte| ByteSet::of(*byte)).collect();
    let constraints =
        Constraints { canvas: &canvas, from_beginning: true, ..Constraints::default() };
    for (pattern, start) in [
        (r"foo\.cgi\?x=\d{4}", 13),
        (r"^GET.*\.cgi\x20", 0),
        (r"\/cgi[^?]*\?", 4),
        (r"(?<=bin\/)\w+\.cgi$", 13),
        (r"new", 20),
    ] {
        let sampled = read(pattern).sample_onto(&Choices::plain(), &constraints);
        let sampled = sampled.unwrap_or_else(|| panic!("{pattern}: no text"));
        let text = sampled.bytes();
        assert!(
            text.starts_with(b"GET /cgi-bin/foo.cgi"),
            "{pattern}: \"{}\"",
            text.escape_ascii()
        );
        assert!(real(pattern).is_match(&text).unwrap(), "{pattern}: \"{}\"", text.escape_ascii());
        assert_eq!(sampled.matched.start, start, "{pattern}: \"{}\"", text.escape_ascii());
    }
}

#[test]
fn the_alphabet_and_avoided_strings_are_respected() {
    let printable = ByteSet::range(33, 126);
    let avoid: &[(&[u8], bool)] = &[(b"a", true), (b"e", true)];
    let constraints = Constraints { alphabet: printable, avoid, ..Constraints::default() };
    let text = read(r"x\W.{40}").sample(&Choices::plain(), &constraints).unwrap().bytes();
    assert!(text.iter().all(|byte| printable.has(*byte)), "{}", text.escape_ascii());
    let sampled = read(r"[a-e]{3}").sample(&Choices::plain(), &constraints);
    assert!(sampled.is_none_or(|sampled| !sampled.bytes().contains(&b'a')));
    assert_eq!(read(r"\s").sample(&Choices::plain(), &constraints), None);
}

#[test]
fn a_group_captures_the_required_text() {
    for (pattern, wanted) in [
        (r"[a-zA-Z]+=(\w+);", "value"),
        (r"x(.*)y", "middle"),
        (r"^(?:GET|(PUT|POST)) \/", "POST"),
        (r"id=(\d+)?(&|$)", "17"),
    ] {
        let expression = read(pattern).with_group(1, wanted.as_bytes()).unwrap();
        let text = expression.sample(&Choices::plain(), &Constraints::default()).unwrap().bytes();
        let real = real(pattern);
        let captures = real.captures(&text).unwrap().unwrap();
        assert_eq!(
            captures.get(1).unwrap().as_bytes(),
            wanted.as_bytes(),
            "{pattern}: {}",
            text.escape_ascii()
        );
    }
    let digits = read(r"id=(\d+)").with_group(1, b"x").unwrap();
    assert_eq!(digits.sample(&Choices::plain(), &Constraints::default()), None);
    assert!(read("a(b)").with_group(2, b"b").is_none());
}

#[test]
fn the_required_surroundings_of_a_text_are_returned() {
    let sample =
        |pattern: &str| read(pattern).sample(&Choices::plain(), &Constraints::default()).unwrap();
    let word = sample(r"\bfoo\b");
    assert!(
        !word.before.has(b'x')
            && word.before.has(b' ')
            && !word.after.has(b'_')
            && word.after.has(b'.')
    );
    let line = sample("(?m)^foo$");
    assert_eq!((line.before, line.after), (ByteSet::of(b'\n'), ByteSet::of(b'\n')));
    let ends = sample(r"\Afoo\z");
    assert!(ends.before.is_empty() && ends.after.is_empty());
    let looked = sample("(?<=ab)cd(?=ef)");
    assert_eq!((looked.bytes(), looked.matched.clone()), (b"abcdef".to_vec(), 2..4));
    let group = sample("x(yz)(q)?");
    assert_eq!(group.captures, [Some(0..3), Some(1..3), None]);
    assert!(sample("foo[a-c]*").prolongs.has(b'b'));
}

#[test]
fn expressions_that_cannot_be_are_refused_with_their_place() {
    for (pattern, at) in [
        ("a(b", 1),
        ("ab)", 2),
        ("a[b", 1),
        ("*a", 0),
        (r"[a-\d]", 5),
        (r"[\d-z]", 4),
        ("a{1}{2}", 4),
        (r"a\", 2),
        (r"(a)\2", 5),
        ("a{3,2}", 6),
        ("(?y)", 2),
        ("[b-a]", 4),
        ("[[:foo:]]", 2),
        (r"\k<x>", 5),
        ("a{70000}", 1),
        (r"\i", 1),
    ] {
        let error = Expression::parse(pattern, Flags::default()).err();
        assert!(RegexBuilder::new().build(pattern).is_err(), "{pattern}");
        assert_eq!(error.as_ref().map(|error| error.at), Some(at), "{pattern}: {error:?}");
    }
}

#[test]
fn explosive_expressions_are_given_up_in_bounded_steps() {
    for pattern in [
        "((a{1000}){1000}){1000}",
        "(?R)",
        "(a|(?R)){60000}",
        "(((a*)*)*)*$x",
        "(?=.*a)(?!.*a)b",
        "((?!a).)*a\\z(?<!a)",
    ] {
        let constraints = Constraints { least: 300, ..Constraints::default() };
        if let Ok(expression) = Expression::parse(pattern, Flags::default()) {
            assert_eq!(expression.sample(&Choices::plain(), &constraints), None, "{pattern}");
        }
    }
    let deep = format!("{}a{}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(Expression::parse(&deep, Flags::default()).is_err());
}

#[test]
fn literals_and_first_octets_are_seen() {
    let literals: Vec<String> = read(r"^foo(bar)?\d+(baz|qux)x{2}end")
        .required_literals()
        .iter()
        .map(|sets| sets.iter().filter_map(|set| set.iter().next()).map(char::from).collect())
        .collect();
    assert_eq!(literals, ["foo", "x", "end"]);
    assert_eq!(
        read(r"\s*(?:a|bc)+d").first_bytes(),
        Some(ByteSet::range(9, 13).with(b' ').with(b'a').with(b'b'))
    );
    assert_eq!(read(r"a*").first_bytes(), None);
}

#[test]
fn expressions_that_pcre2_accepts_parse_and_texts_match_in_almost_all_mutations() {
    let all: Vec<&str> = expressions().collect();
    let mut random = SplitMix64(7);
    let (mut read_by_both, mut read_by_pcre2, mut texts, mut matches) = (0, 0, 0, 0);
    let mut wrong = Vec::new();
    for round in 0..6_000 {
        let (a, b) =
            (all[(random.draw() as usize) % all.len()], all[(random.draw() as usize) % all.len()]);
        let (left, right) =
            ((random.draw() as usize) % (a.len() + 1), (random.draw() as usize) % (b.len() + 1));
        let mut mutated =
            if round % 2 == 0 { [a, b].concat() } else { [&a[..left], &b[right..]].concat() };
        if round % 3 == 0 {
            let at = (random.draw() as usize) % mutated.len().max(1);
            mutated = mutated
                .chars()
                .enumerate()
                .filter(|(index, _)| *index != at)
                .map(|(_, letter)| letter)
                .collect();
        }
        let real = RegexBuilder::new().build(&mutated);
        let parsed = Expression::parse(&mutated, Flags::default());
        let Ok(real) = real else { continue };
        read_by_pcre2 += 1;
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(error) => {
                wrong.push(format!("{mutated}: {error}"));
                continue;
            }
        };
        read_by_both += 1;
        let constraints = Constraints { steps: 20_000, ..Constraints::default() };
        let Some(sampled) = parsed.sample(&Choices::seeded(round), &constraints) else { continue };
        texts += 1;
        assert!(sampled.text.iter().all(|slot| slot.allowed.has(slot.preferred)), "{mutated}");
        match real.is_match(&sampled.bytes()) {
            Ok(true) => matches += 1,
            found => {
                wrong.push(format!("{mutated}: \"{}\" {found:?}", sampled.bytes().escape_ascii()))
            }
        }
    }
    assert!(read_by_pcre2 > 2_000);
    assert!(
        read_by_both * 1000 >= read_by_pcre2 * 995,
        "{read_by_both} of {read_by_pcre2}: {wrong:#?}"
    );
    assert!(matches * 1000 >= texts * 995, "{matches} of {texts} of {read_by_both}: {wrong:#?}");
}

#[test]
fn quantifiers_after_quotes_are_those_of_pcre2_and_never_nest() {
    let many = |unit: &str| format!("a{{2}}{}", unit.repeat(10_000));
    for pattern in [
        r"a+\E+b",
        r"a+\Q\E+b",
        r"a+\E?b",
        r"a+\E*",
        r"a{2}\E{2}",
        r"a\E+",
        r"\Qab\E+\E+",
        r"(?:a+)\E+b",
    ] {
        let parsed = Expression::parse(pattern, Flags::default());
        assert_eq!(parsed.is_ok(), Regex::new(pattern).is_ok(), "{pattern}: {:?}", parsed.err());
    }
    // Nested repetitions would add a level of recursion each, in all functions on the tree.
    for pattern in [many(r"\E{2}"), many(r"\Q\E*")] {
        let refused = Expression::parse(&pattern, Flags::default()).err().unwrap();
        assert!(refused.to_string().contains("nothing before it to repeat"), "{refused}");
    }
    drop(Expression::parse(&many(r"\E+"), Flags::default()));
}
