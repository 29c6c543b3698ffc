//! Port addresses: `KIND:NAME[,key=value]...`.

use std::{fmt, io, str::FromStr};

/// A parsed address: `af_packet:eth1,queue=0`, `loop:0,drop=0.01`, `null:`, or a bare interface
/// name, `eth1`.
///
/// A backend takes the options that it knows with [`Address::take`] and ends with
/// [`Address::finish`], which refuses the others:
/// ```
/// let mut address: squall_port::Address = "loop:0,ring=4096".parse()?;
/// assert_eq!((address.kind(), address.name()), ("loop", "0"));
/// assert_eq!(address.take::<usize>("ring", "frames, 1 or more")?, Some(4096));
/// address.finish(&["ring"])?;
/// # Ok::<_, squall_port::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    text: String,
    kind: String,
    name: String,
    options: Vec<(String, Option<String>)>,
}

/// The address and its problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("port address {address:?}: {problem}")]
pub struct AddressError {
    pub address: String,
    pub problem: String,
}

impl Address {
    /// The part before the colon; empty for a bare name.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether option `key` is given and was not taken yet.
    pub fn has(&self, key: &str) -> bool {
        self.options.iter().any(|(given, _)| given == key)
    }

    /// Removes option `key` and returns its value. `expected` completes the error message: "frames,
    /// 1 or more".
    pub fn take<T: FromStr>(
        &mut self,
        key: &str,
        expected: &str,
    ) -> Result<Option<T>, AddressError> {
        let Some(value) = self.remove(key) else { return Ok(None) };
        let value = value.ok_or_else(|| {
            self.error(format!("{key} has no value, expected {key}=<{expected}>"))
        })?;
        match value.parse() {
            Ok(parsed) => Ok(Some(parsed)),
            Err(_) => Err(self.error(format!("{key}={value}, expected {expected}"))),
        }
    }

    /// As [`Address::take`], within `range`; `default` if the option is not given.
    pub fn take_in(
        &mut self,
        key: &str,
        range: std::ops::RangeInclusive<u32>,
        default: u32,
    ) -> Result<u32, AddressError> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        match self.take(key, &expected)? {
            Some(n) if !range.contains(&n) => {
                Err(self.error(format!("{key}={n}, expected {expected}")))
            }
            given => Ok(given.unwrap_or(default)),
        }
    }

    /// Removes the flag `key` and returns its value: `key` alone or `key=1` is true, `key=0` is
    /// false.
    pub fn take_flag(&mut self, key: &str) -> Result<Option<bool>, AddressError> {
        match self.remove(key) {
            None => Ok(None),
            Some(None) => Ok(Some(true)),
            Some(Some(v)) if v == "1" || v == "true" => Ok(Some(true)),
            Some(Some(v)) if v == "0" || v == "false" => Ok(Some(false)),
            Some(Some(v)) => Err(self.error(format!("{key}={v}, expected {key}=0 or {key}=1"))),
        }
    }

    /// Refuses options that were not taken; `known` lists the options of this kind of port.
    pub fn finish(self, known: &[&str]) -> Result<(), AddressError> {
        match self.options.first() {
            None => Ok(()),
            Some((key, _)) if known.contains(&key.as_str()) => {
                Err(self.error(format!("option {key} is given twice")))
            }
            Some((key, _)) if known.is_empty() => {
                Err(self.error(format!("unknown option {key}: {} has no options", self.kind)))
            }
            Some((key, _)) => {
                Err(self
                    .error(format!("unknown option {key}, expected one of {}", known.join(", "))))
            }
        }
    }

    pub fn error(&self, problem: impl Into<String>) -> AddressError {
        AddressError { address: self.text.clone(), problem: problem.into() }
    }

    fn remove(&mut self, key: &str) -> Option<Option<String>> {
        let at = self.options.iter().position(|(k, _)| k == key)?;
        Some(self.options.remove(at).1)
    }
}

impl FromStr for Address {
    type Err = AddressError;
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (front, options) =
            text.split_once(',').map_or((text, None), |(front, rest)| (front, Some(rest)));
        let (kind, name) = front.split_once(':').unwrap_or(("", front));
        let options = options.into_iter().flat_map(|o| o.split(',')).map(|option| {
            match option.split_once('=') {
                Some((key, value)) => (key.trim().to_owned(), Some(value.trim().to_owned())),
                None => (option.trim().to_owned(), None),
            }
        });
        let address = Self {
            text: text.to_owned(),
            kind: kind.trim().to_owned(),
            name: name.trim().to_owned(),
            options: options.collect(),
        };
        if address.options.iter().any(|(key, _)| key.is_empty()) {
            return Err(
                address.error("an option without a name, expected KIND:NAME[,key=value]...")
            );
        }
        if address.kind.is_empty() && address.name.is_empty() {
            return Err(
                address.error("it is empty; try af_packet:eth1, pcap:out.pcap, loop:0 or null:")
            );
        }
        Ok(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<AddressError> for io::Error {
    fn from(error: AddressError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Address {
        text.parse().expect(text)
    }

    #[test]
    fn only_the_first_colon_separates_kind_and_name() {
        let a = parse("dpdk:0000:01:00.0,queue=1");
        assert_eq!((a.kind(), a.name()), ("dpdk", "0000:01:00.0"));
        let a = parse("eth1");
        assert_eq!((a.kind(), a.name()), ("", "eth1"));
        let a = parse("null:");
        assert_eq!((a.kind(), a.name()), ("null", ""));
    }

    #[test]
    fn mistakes_are_reported_with_the_expected_value() {
        let error = parse("loop:0,ring=big")
            .take::<u32>("ring", "frames, 1 or more")
            .unwrap_err()
            .to_string();
        assert_eq!(error, "port address \"loop:0,ring=big\": ring=big, expected frames, 1 or more");
        let error = parse("loop:0,rnig=4").finish(&["ring", "queues"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "port address \"loop:0,rnig=4\": unknown option rnig, expected one of ring, queues"
        );
        let error = parse("loop:0,ring=0").take_in("ring", 1..=9, 4).unwrap_err().to_string();
        assert_eq!(error, "port address \"loop:0,ring=0\": ring=0, expected a number from 1 to 9");
        assert!("".parse::<Address>().is_err());
        assert!("loop:0,".parse::<Address>().is_err());
    }
}
