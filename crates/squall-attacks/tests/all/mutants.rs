//! Mutated rules: valid structure with long texts, unexpected numbers, deep nesting, and parts that
//! are removed, doubled or moved. No mutant may cause a panic or take long. scripts/mutants does
//! the same with profiles, and for longer.
//!
//! MUTANTS_S=600 runs for 600 seconds; MUTANTS_SEED sets the seed. Failing inputs are kept in the
//! temporary directory.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::mpsc,
    time::{Duration, Instant},
};

use squall_attacks::{
    Solver, near_miss,
    solve::{Hosts, Settings, endpoints_of, explain},
    wire,
};
use squall_rules::{RuleSet, Variables};
use squall_units::SplitMix64;

#[test]
fn mutated_rules_are_read_and_solved_without_panic() {
    let seeds: Vec<String> =
        texts(&["crates/squall-attacks/tests/rules", "examples/rules"], "rules")
            .iter()
            .flat_map(|text| {
                text.lines()
                    .filter(|line| line.contains('('))
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .collect();
    try_all(
        "rule",
        150,
        |chance| {
            let mut rule = chance.pick(&seeds).clone();
            for _ in 0..1 + chance.below(4) {
                let other = chance.pick(&seeds).clone();
                rule = mutate_rule(&rule, &other, chance);
            }
            rule
        },
        read_and_solve,
    );
}

fn read_and_solve(text: &str) {
    let rules = RuleSet::parse(text, &Variables::standard());
    let settings = Settings { steps: 40_000, attempts: 8, ..Settings::default() };
    let solver = Solver::new(&rules, settings);
    for (index, rule) in rules.rules.iter().enumerate() {
        let solution = match solver.solve(index, 0) {
            Ok(solution) => solution,
            Err(unsolved) => {
                assert!(!unsolved.text.is_empty());
                continue;
            }
        };
        assert!(!explain(&rules, &solution).to_string().is_empty());
        near_miss(&solution, &rules, &solver);
        let Some(ends) = endpoints_of(&[rule], 7, &Hosts::default()) else { continue };
        for exchange in &solution.exchanges {
            let _ = wire::frames(exchange, &ends, &wire::Settings::default());
        }
    }
}

// --- mutations ---

fn mutate_rule(rule: &str, other: &str, chance: &mut Chance) -> String {
    let Some((head, body)) = rule.split_once('(') else { return rule.to_owned() };
    let options =
        |body: &str| body.trim_end_matches(')').split(';').map(str::to_owned).collect::<Vec<_>>();
    let (mut head, mut rule_options) = (head.to_owned(), options(body));
    let other_options = other.split_once('(').map(|(_, body)| options(body)).unwrap_or_default();
    let at = chance.below(rule_options.len());
    match chance.below(8) {
        0 | 1 => rule_options[at] = change_number(&rule_options[at], chance),
        2 => {
            let keyword = rule_options[at].split(':').next().unwrap_or_default().to_owned();
            rule_options[at] = format!("{keyword}:{}", odd_text(chance).replace(';', ""));
        }
        3 => {
            rule_options.remove(at);
        }
        4 => {
            let option = rule_options[at].clone();
            (0..1 + chance.below(40)).for_each(|_| rule_options.insert(at, option.clone()));
        }
        5 if !other_options.is_empty() => {
            rule_options.insert(at, chance.pick(&other_options).clone())
        }
        6 => {
            let mut words: Vec<String> = head.split_whitespace().map(str::to_owned).collect();
            if !words.is_empty() {
                let word = chance.below(words.len());
                words[word] = odd_text(chance).split_whitespace().collect();
            }
            head = words.join(" ") + " ";
        }
        _ => {
            let (keyword, depth) = (
                ["content", "pcre", "byte_test", "uricontent", "isdataat"],
                1 + chance.below(3000),
            );
            let deep = format!("\"/{}a{}/\"", "(".repeat(depth), ")".repeat(depth));
            let long = format!("\"{}\"", "x".repeat(depth * 20));
            let value = [
                deep,
                long,
                "\"/(a{60000}){60000}/\"".into(),
                "-4,>,-1,-65536".into(),
                "!,,,,,".into(),
            ];
            rule_options.insert(at, format!("{}:{}", chance.pick(&keyword), chance.pick(&value)));
        }
    }
    format!("{head}({})", rule_options.join(";"))
}

/// Changes one of the numbers in a text, if there is any.
fn change_number(text: &str, chance: &mut Chance) -> String {
    let digit = |i: &usize| text.as_bytes()[*i].is_ascii_digit();
    let starts: Vec<usize> =
        (0..text.len()).filter(|i| digit(i) && (*i == 0 || !digit(&(i - 1)))).collect();
    if starts.is_empty() {
        return text.to_owned();
    }
    let at = *chance.pick(&starts);
    let end = (at..text.len()).find(|i| !digit(i)).unwrap_or(text.len());
    format!("{}{}{}", &text[..at], chance.pick(&NUMBERS), &text[end..])
}

const NUMBERS: [&str; 18] = [
    "-1",
    "0",
    "1",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "-2147483649",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e-308",
    "0.000000000000000000001",
    "99999999999999999999999999999999999999999999999999",
    "nan",
    "0xffffffffffffffff",
];

fn odd_text(chance: &mut Chance) -> String {
    let (n, number) = (1 + chance.below(70_000), *chance.pick(&NUMBERS));
    match chance.below(12) {
        0 => "n".repeat(n),
        1 => "\u{1f980}".repeat(n / 4),
        2 => format!("{}ipv4/udp", "eth/".repeat(n / 20)),
        3 => format!("eth{}/ipv4/udp", "/vlan".repeat(n / 500)),
        4 => format!("eth/ipv4(ttl={number})/udp(sport={number})/payload({number})"),
        5 => (*chance.pick(&[
            "10.0.0.9-10.0.0.1",
            "::-ffff:ffff::",
            "0.0.0.0/0",
            "::/0",
            "10.0.0.0/33",
            "[::]:99999",
        ]))
        .to_owned(),
        6 => format!("{number}-{}", chance.pick(&NUMBERS)),
        7 => format!("{}{}a{}", "!".repeat(n / 30), "[".repeat(n / 30), "]".repeat(n / 30)),
        8 => format!("\u{0}\u{1b}[31m\u{202e}\r\n\t{number}"),
        _ => {
            let unit = chance.pick(&[
                "", " pps", " Gbps", " %", "s", " ms", "ns", "KiB", " Mbps l1", "k", "h", "*7",
            ]);
            format!("{number}{unit}")
        }
    }
}

// --- the runner ---

struct Chance(SplitMix64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        (self.0.draw() % n as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

fn texts(folders: &[&str], ending: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = folders.iter().flat_map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == ending));
    paths.sort();
    assert!(!paths.is_empty(), "{folders:?} have none");
    paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// Maximum time per input, more than any should take even on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(60);

fn try_all(
    kind: &str,
    count: u64,
    make: impl Fn(&mut Chance) -> String,
    take: impl Fn(&str) + Sync,
) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (seed, seconds) = (number("MUTANTS_SEED").unwrap_or(17), number("MUTANTS_S"));
    let until = seconds.map(|s| Instant::now() + Duration::from_secs(s));
    let mut broken = Vec::new();
    std::thread::scope(|scope| {
        let (texts, begun) = mpsc::channel::<(u64, String)>();
        // A watchdog prints the input that takes too long, and ends the process.
        let (done, ended) = mpsc::channel::<u64>();
        scope.spawn(move || {
            for (number, text) in begun {
                if ended.recv_timeout(TIME_LIMIT).map_err(|e| e == mpsc::RecvTimeoutError::Timeout)
                    != Ok(number)
                {
                    keep(kind, number, &text);
                    eprintln!("{kind} {number} is not done after {TIME_LIMIT:?}");
                    std::process::abort();
                }
            }
        });
        for number in 0.. {
            if until.map_or(number >= count, |until| Instant::now() >= until) {
                break;
            }
            let text = make(&mut Chance(SplitMix64(seed << 32 | number)));
            texts.send((number, text.clone())).expect("the watch is there until the end");
            if catch_unwind(AssertUnwindSafe(|| take(&text))).is_err() {
                keep(kind, number, &text);
                broken.push(number);
            }
            done.send(number).expect("the watch is there until the end");
        }
    });
    assert!(
        broken.is_empty(),
        "{kind} {broken:?} of seed {seed} break it; they are in {}",
        kept(kind, 0).display()
    );
}

fn kept(kind: &str, number: u64) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutant-{kind}-{number}"))
}

fn keep(kind: &str, number: u64, text: &str) {
    fs::write(kept(kind, number), text).expect("the folder of temporary files can be written");
}
