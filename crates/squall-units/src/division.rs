use std::{fmt, net::IpAddr, str::FromStr};

/// Part `index` (0-based) of a whole that is divided into `of` parts. A number belongs to the part
/// given by its remainder, so the parts are disjoint and cover the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Division {
    index: u32,
    of: u32,
}

/// The default is the whole as a single part.
impl Default for Division {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl Division {
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// Returns `None` unless `index` is below `of`.
    pub const fn new(index: u32, of: u32) -> Option<Self> {
        if index < of { Some(Self { index, of }) } else { None }
    }

    /// Index of the part, 0-based.
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Number of parts, at least 1.
    pub const fn of(self) -> u32 {
        self.of
    }

    pub const fn is_whole(self) -> bool {
        self.of == 1
    }

    /// Whether this number belongs to the part.
    ///
    /// ```
    /// use squall_units::Division;
    /// let second: Division = "2/3".parse()?;
    /// assert_eq!((0..6).filter(|n| second.has(*n)).collect::<Vec<_>>(), [1, 4]);
    /// # Ok::<_, String>(())
    /// ```
    pub const fn has(self, number: u64) -> bool {
        number % self.of as u64 == self.index as u64
    }

    /// Whether a client's address belongs to the part. Adjacent addresses of a pool belong to the
    /// parts in turn.
    pub fn has_address(self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.has(address.to_bits().into()),
            IpAddr::V6(address) => address.to_bits() % u128::from(self.of) == self.index.into(),
        }
    }

    /// Share `index` if this part is divided into `of` shares. Returns the first number of the
    /// share within the whole, and the step to its next number.
    pub const fn share(self, index: u64, of: u64) -> (u64, u64) {
        (self.index as u64 + self.of as u64 * index, self.of as u64 * of)
    }
}

/// Parses `"2/3"`, which is the second of three parts.
impl FromStr for Division {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers =
            text.split_once('/').map(|(part, of)| (part.trim().parse(), of.trim().parse()));
        match numbers {
            Some((Ok(part @ 1..), Ok(of))) if part <= of => Ok(Self { index: part - 1, of }),
            _ => Err(format!(
                "{text:?} is not a part: expected I/N, such as 2/3 for the second of three"
            )),
        }
    }
}

impl fmt::Display for Division {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_up_the_whole_and_read_back() {
        for of in 1..5 {
            let parts: Vec<_> = (0..of).map(|i| Division::new(i, of).unwrap()).collect();
            for n in 0..100 {
                assert_eq!(parts.iter().filter(|part| part.has(n)).count(), 1);
                let address = IpAddr::V4((0x0a00_0000 + n as u32).into());
                assert_eq!(parts.iter().filter(|part| part.has_address(address)).count(), 1);
            }
            parts.iter().for_each(|part| assert_eq!(part.to_string().parse(), Ok(*part)));
        }
        for text in ["0/3", "4/3", "1", "1/0", "a/b", "1/-2", ""] {
            assert!(text.parse::<Division>().is_err(), "{text}");
        }
        assert_eq!(Division::new(3, 3), None);
    }
}
