//! Statuses of calls (<https://github.com/grpc/grpc/blob/master/doc/statuscodes.md>).

use std::{fmt, str::FromStr};

use squall_http::h2::Code;

/// The status with which a call ends. Its text is the name: `NOT_FOUND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(u8);

impl Status {
    pub const OK: Self = Self(0);
    pub const CANCELLED: Self = Self(1);
    pub const UNKNOWN: Self = Self(2);
    pub const DEADLINE_EXCEEDED: Self = Self(4);
    pub const PERMISSION_DENIED: Self = Self(7);
    pub const RESOURCE_EXHAUSTED: Self = Self(8);
    pub const UNIMPLEMENTED: Self = Self(12);
    pub const INTERNAL: Self = Self(13);
    pub const UNAVAILABLE: Self = Self(14);
    pub const UNAUTHENTICATED: Self = Self(16);

    /// By number.
    pub const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];

    /// 0..=16.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// That of the field `grpc-status`; numbers that are not defined are `UNKNOWN`.
    pub(crate) fn of_field(value: &[u8]) -> Self {
        let number = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        let known = |number: &u8| usize::from(*number) < Self::NAMES.len();
        number.filter(known).map_or(Self::UNKNOWN, Self)
    }

    /// That of an answer without the field, by its status of HTTP
    /// (<https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md>).
    pub(crate) fn of_http(status: u16) -> Self {
        match status {
            400 => Self::INTERNAL,
            401 => Self::UNAUTHENTICATED,
            403 => Self::PERMISSION_DENIED,
            404 => Self::UNIMPLEMENTED,
            429 | 502..=504 => Self::UNAVAILABLE,
            _ => Self::UNKNOWN,
        }
    }

    /// That of a call whose stream the server resets (PROTOCOL-HTTP2.md, "Errors").
    pub(crate) fn of_reset(code: Code) -> Self {
        match code {
            Code::REFUSED_STREAM => Self::UNAVAILABLE,
            Code::CANCEL => Self::CANCELLED,
            Code::ENHANCE_YOUR_CALM => Self::RESOURCE_EXHAUSTED,
            Code::INADEQUATE_SECURITY => Self::PERMISSION_DENIED,
            _ => Self::INTERNAL,
        }
    }
}

impl FromStr for Status {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = Self::NAMES.iter().position(|name| *name == text).ok_or(())?;
        Ok(Self(number as u8))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES[usize::from(self.0)])
    }
}

/// Statuses with which a call may end. Their text: `any`, or names with spaces in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statuses(u32);

impl Statuses {
    pub const ANY: Self = Self((1 << Status::NAMES.len()) - 1);

    #[must_use]
    pub fn contains(self, status: Status) -> bool {
        self.0 & Self::from(status).0 != 0
    }
}

impl From<Status> for Statuses {
    fn from(status: Status) -> Self {
        Self(1 << status.0)
    }
}

impl FromStr for Statuses {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "any" {
            return Ok(Self::ANY);
        }
        let mut all = 0;
        for name in text.split_whitespace() {
            all |= Self::from(name.parse::<Status>()?).0;
        }
        if all == 0 { Err(()) } else { Ok(Self(all)) }
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ANY {
            return f.write_str("any");
        }
        let all = Status::NAMES.iter().enumerate();
        let names = all.filter(|(number, _)| self.0 & 1 << number != 0);
        for (i, (_, name)) in names.enumerate() {
            write!(f, "{}{name}", if i > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_names_and_numbers_of_grpc() {
        for (number, name) in (0..).zip(Status::NAMES) {
            let status: Status = name.parse().expect(name);
            assert_eq!((status.number(), status.to_string().as_str()), (number, name));
            assert_eq!(Status::of_field(number.to_string().as_bytes()), status);
        }
        for value in [&b"17"[..], b"300", b"", b"x", b"-1"] {
            assert_eq!(Status::of_field(value), Status::UNKNOWN, "{value:?}");
        }
        for (constant, name) in [
            (Status::DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"),
            (Status::PERMISSION_DENIED, "PERMISSION_DENIED"),
            (Status::RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED"),
            (Status::UNIMPLEMENTED, "UNIMPLEMENTED"),
            (Status::INTERNAL, "INTERNAL"),
            (Status::UNAVAILABLE, "UNAVAILABLE"),
            (Status::UNAUTHENTICATED, "UNAUTHENTICATED"),
        ] {
            assert_eq!(constant.to_string(), name);
        }
    }

    #[test]
    fn sets_of_statuses_are_lists_of_names() {
        for text in ["any", "OK", "OK NOT_FOUND UNAUTHENTICATED"] {
            assert_eq!(text.parse::<Statuses>().map(|all| all.to_string()), Ok(text.into()));
        }
        let some: Statuses = "CANCELLED DEADLINE_EXCEEDED".parse().expect("two names");
        assert!(some.contains(Status::CANCELLED) && !some.contains(Status::OK));
        for wrong in ["", "ok", "OK, NOT_FOUND", "ANY"] {
            assert_eq!(wrong.parse::<Statuses>(), Err(()), "{wrong}");
        }
    }
}
