//! MAC addresses.

use std::{fmt, str::FromStr};

use crate::UnitError;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl FromStr for MacAddr {
    type Err = UnitError;
    /// Parses `02:00:00:00:00:01`, `02-00-00-00-00-01`, `0200.0000.0001`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        crate::parse::mac(text)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
