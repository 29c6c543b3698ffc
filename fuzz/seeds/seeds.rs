//! The fuzz targets as ordinary tests: each takes its seeds, and the same variants of them in each
//! run. That compiles all targets with the libraries of the other tests, which takes a tenth of the
//! time of a build for libFuzzer; `scripts/fuzz` searches for new inputs.

use std::path::Path;

/// Declares a test for each target, and the list of files.
macro_rules! targets {
    ($($path:literal $name:ident)*) => {
        $(
            #[test]
            fn $name() {
                play(stringify!($name), squall_fuzz_seeds::$name::take_input);
            }
        )*
        const FILES: &[&str] = &[$($path),*];
    };
}

include!("targets.rs");

/// Variants of each seed.
const VARIANTS: u64 = 64;

/// Longer seeds have no variants: they are whole files, and most changes break them early.
const LONGEST: usize = 8192;

/// Runs the target with no octets, its seeds, and variants of them. A target that breaks prints its
/// input as hexadecimal digits, from which `xxd -r -p` makes a file for `scripts/fuzz`.
fn play(name: &str, target: fn(&[u8])) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut inputs = vec![vec![]];
    for folder in folders(name) {
        let Ok(files) = std::fs::read_dir(root.join(folder)) else { continue };
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        inputs.extend(files.iter().filter_map(|file| std::fs::read(file).ok()));
    }
    let mut random = Random(0x5eed);
    for seed in &inputs {
        run(target, seed);
        if seed.len() <= LONGEST {
            for _ in 0..VARIANTS {
                run(target, &random.variant(seed, &inputs));
            }
        }
    }
}

/// The folders with a target's seeds, as in `scripts/fuzz`.
fn folders(name: &str) -> Vec<String> {
    let mut all = vec![format!("fuzz/corpus/{name}")];
    match name {
        "profile" => all.push("examples/profiles".into()),
        "packet_script" => all.push("crates/squall-tcp/tests/scripts".into()),
        _ => {}
    }
    all
}

fn run(target: fn(&[u8]), input: &[u8]) {
    let shown = Shown(input);
    target(input);
    std::mem::forget(shown);
}

/// An input that is printed if the target panics.
struct Shown<'a>(&'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let digits: String = self.0.iter().map(|octet| format!("{octet:02x}")).collect();
        eprintln!("input of {} octets: {digits}", self.0.len());
    }
}

/// SplitMix64 (Steele et al., Fast Splittable Pseudorandom Number Generators, 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bound = u64::try_from(bound.max(1)).expect("64 bits");
        usize::try_from((mixed ^ (mixed >> 31)) % bound).expect("below a usize")
    }

    /// `seed` with one to four changes: another octet, one more, octets cut out, repeated, or taken
    /// from another input.
    fn variant(&mut self, seed: &[u8], inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut octets = seed.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(octets.len() + 1);
            let end = octets.len().min(at + self.below(16));
            let value = u8::try_from(self.below(256)).expect("below 256");
            match self.below(6) {
                0 => octets.insert(at, value),
                1 => octets.truncate(at),
                2 => {
                    octets.drain(at..end);
                }
                3 => {
                    let repeated = octets[at..end].to_vec();
                    octets.splice(at..at, repeated);
                }
                4 => {
                    let other = &inputs[self.below(inputs.len())];
                    let begin = self.below(other.len() + 1);
                    let len = self.below(64).min(other.len() - begin);
                    let end = octets.len().min(at + len);
                    octets.splice(at..end, other[begin..][..len].iter().copied());
                }
                _ => {
                    if let Some(octet) = octets.get_mut(at) {
                        *octet = value;
                    }
                }
            }
        }
        octets
    }
}

#[test]
fn each_target_is_here_and_built_with_the_same_libraries() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files: Vec<_> = std::fs::read_dir(fuzz.join("fuzz_targets"))
        .unwrap()
        .map(|file| format!("../fuzz_targets/{}", file.unwrap().file_name().display()))
        .collect();
    files.sort();
    assert_eq!(FILES, files, "the list in fuzz/seeds/targets.rs");

    let [targets, seeds] = ["Cargo.toml", "seeds/Cargo.toml"]
        .map(|file| std::fs::read_to_string(fuzz.join(file)).unwrap());
    for file in &files {
        let path = file.trim_start_matches("../");
        assert!(targets.contains(&format!("path = \"{path}\"")), "{path} in fuzz/Cargo.toml");
    }
    let libraries = |text: &str, after: &str| -> Vec<String> {
        let lines = text.split_once(after).expect("a table of dependencies").1.lines().skip(1);
        lines
            .take_while(|line| !line.is_empty())
            .filter(|line| !line.starts_with("libfuzzer-sys"))
            .map(|line| line.replace("../../crates", "../crates"))
            .collect()
    };
    assert_eq!(
        libraries(&seeds, "[dependencies]"),
        libraries(&targets, "[dependencies]"),
        "the dependencies of fuzz/seeds/Cargo.toml",
    );
}
