//! The list of browsers, which browsers.txt explains.

use super::{Hello, octets::Octets};

const LIST: &str = include_str!("browsers.txt");

/// A browser whose ClientHello is known.
#[derive(Clone, Copy, Debug)]
pub struct Browser {
    /// "chrome-131": also its version, and the system if it has a hello of its own there.
    pub name: &'static str,
    block: &'static str,
}

impl Browser {
    /// All browsers of the list, older hellos before newer ones.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        let of_block = |block| {
            let names = lines(block, "hello").flat_map(str::split_whitespace);
            names.map(move |name| Self { name, block })
        };
        LIST.split("\n\n").flat_map(of_block).collect::<Vec<_>>().into_iter()
    }

    /// # Panics
    /// Never: a test reads all.
    pub fn hello(&self) -> Hello {
        let octets = octets(self.block).expect("the list has octets in hexadecimal");
        Hello::from_client_hello(&octets).expect("the list has hellos")
    }

    /// The JA4 values of the hello that were published, each with its place of publication.
    pub fn published(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        lines(self.block, "ja4").filter_map(|line| line.split_once(' '))
    }
}

/// The rest of each line that begins with `word`.
fn lines(block: &'static str, word: &'static str) -> impl Iterator<Item = &'static str> {
    block.lines().filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
}

/// The octets of a block: digits in pairs; `00*32` means 32 zeros.
fn octets(block: &str) -> Option<Vec<u8>> {
    let mut all = vec![];
    let lines = block.lines().filter_map(|line| line.strip_prefix("  "));
    for word in lines.flat_map(str::split_whitespace) {
        match word.split_once('*') {
            Some((digits, times)) => {
                let one = u8::from_str_radix(digits, 16).ok()?;
                all.resize(all.len() + times.parse::<usize>().ok()?, one);
            }
            None => {
                let mut rest = Octets(word.as_bytes());
                while !rest.0.is_empty() {
                    let pair = std::str::from_utf8(rest.take(2)?).ok()?;
                    all.push(u8::from_str_radix(pair, 16).ok()?);
                }
            }
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_browser_has_a_hello_and_its_published_fingerprint() {
        let mut names: Vec<&str> = Browser::all().map(|one| one.name).collect();
        names.sort_unstable();
        let n = names.len();
        names.dedup();
        assert!(n >= 20 && names.len() == n, "{names:?}");
        for one in Browser::all() {
            let ja4 = one.hello().ja4();
            assert!(one.published().any(|(value, _)| value == ja4), "{}: {ja4}", one.name);
        }
    }

    #[test]
    fn only_chromium_shuffles() {
        for one in Browser::all() {
            let of = |browser| one.name.strip_prefix(browser);
            let version =
                of("chrome-").or(of("edge-")).and_then(|rest| rest.get(..3)?.parse().ok());
            assert_eq!(one.hello().shuffle, version.is_some_and(|n: u32| n >= 110), "{}", one.name);
        }
    }
}
