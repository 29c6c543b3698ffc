//! NOTIFICATIONs: codes of errors, their texts, and the messages.

use std::fmt;

/// An error that ends a connection (RFC 4271 section 4.5). Any code can be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notification {
    pub code: u8,
    pub subcode: u8,
    /// At most 4,075 octets: the longest message less its header and the codes.
    pub data: Vec<u8>,
}

/// Codes (RFC 4271 section 4.5, RFC 7313 section 5).
pub(crate) mod code {
    pub const HEADER: u8 = 1;
    pub const OPEN: u8 = 2;
    pub const UPDATE: u8 = 3;
    pub const HOLD_TIMER: u8 = 4;
    pub const FSM: u8 = 5;
    pub const CEASE: u8 = 6;
    pub const REFRESH: u8 = 7;
}

/// Subcodes of CEASE (RFC 4486).
pub mod cease {
    pub const MAXIMUM_PREFIXES: u8 = 1;
    pub const SHUTDOWN: u8 = 2;
    pub const RESET: u8 = 4;
    pub const COLLISION: u8 = 7;
}

/// Longest data of a message of 4,096 octets.
const LONGEST_DATA: usize = crate::MOST - crate::HEADER - 2;

impl Notification {
    pub fn new(code: u8, subcode: u8) -> Self {
        Self { code, subcode, data: Vec::new() }
    }

    pub(crate) fn with(code: u8, subcode: u8, data: &[u8]) -> Self {
        Self { code, subcode, data: data[..data.len().min(LONGEST_DATA)].to_vec() }
    }

    /// A CEASE (RFC 4486).
    pub fn cease(subcode: u8) -> Self {
        Self::new(code::CEASE, subcode)
    }

    /// The message, with its header. Data that does not fit is cut.
    pub fn octets(&self) -> Vec<u8> {
        let data = &self.data[..self.data.len().min(LONGEST_DATA)];
        let mut out = crate::message::begin(crate::message::Kind::Notification);
        out.extend([self.code, self.subcode]);
        out.extend_from_slice(data);
        crate::message::finish(out)
    }

    /// Reads the body of a message, which has at least two octets.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let [code, subcode, data @ ..] = body else { return None };
        Some(Self::with(*code, *subcode, data))
    }

    /// The names of the code and the subcode; empty: none is registered.
    pub fn names(&self) -> (&'static str, &'static str) {
        let (name, subcodes): (_, &[&str]) = match self.code {
            code::HEADER => (
                "Message Header Error",
                &["", "Connection Not Synchronized", "Bad Message Length", "Bad Message Type"],
            ),
            code::OPEN => (
                "OPEN Message Error",
                &[
                    "",
                    "Unsupported Version Number",
                    "Bad Peer AS",
                    "Bad BGP Identifier",
                    "Unsupported Optional Parameter",
                    "",
                    "Unacceptable Hold Time",
                    "Unsupported Capability",
                ],
            ),
            code::UPDATE => (
                "UPDATE Message Error",
                &[
                    "",
                    "Malformed Attribute List",
                    "Unrecognized Well-known Attribute",
                    "Missing Well-known Attribute",
                    "Attribute Flags Error",
                    "Attribute Length Error",
                    "Invalid ORIGIN Attribute",
                    "",
                    "Invalid NEXT_HOP Attribute",
                    "Optional Attribute Error",
                    "Invalid Network Field",
                    "Malformed AS_PATH",
                ],
            ),
            code::HOLD_TIMER => ("Hold Timer Expired", &[]),
            // RFC 6608 section 3.
            code::FSM => (
                "Finite State Machine Error",
                &[
                    "",
                    "Unexpected Message in OpenSent",
                    "Unexpected Message in OpenConfirm",
                    "Unexpected Message in Established",
                ],
            ),
            // RFC 4486 section 3, RFC 8538 section 3.
            code::CEASE => (
                "Cease",
                &[
                    "",
                    "Maximum Number of Prefixes Reached",
                    "Administrative Shutdown",
                    "Peer De-configured",
                    "Administrative Reset",
                    "Connection Rejected",
                    "Other Configuration Change",
                    "Connection Collision Resolution",
                    "Out of Resources",
                    "Hard Reset",
                ],
            ),
            code::REFRESH => ("ROUTE-REFRESH Message Error", &["", "Invalid Message Length"]),
            _ => ("", &[]),
        };
        (name, subcodes.get(usize::from(self.subcode)).copied().unwrap_or_default())
    }
}

impl fmt::Display for Notification {
    /// `Cease: Administrative Shutdown (6/2)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, subname) = self.names();
        let name = if name.is_empty() { "unknown error" } else { name };
        let colon = if subname.is_empty() { "" } else { ": " };
        write!(f, "{name}{colon}{subname} ({}/{})", self.code, self.subcode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_reads_back_and_has_the_names_of_its_codes() {
        let notification = Notification::with(2, 1, &[0, 4]);
        let octets = notification.octets();
        assert_eq!(octets[16..], [0, 23, 3, 2, 1, 0, 4]);
        assert_eq!(Notification::read(&octets[19..]), Some(notification.clone()));
        assert_eq!(
            notification.to_string(),
            "OPEN Message Error: Unsupported Version Number (2/1)"
        );
        assert_eq!(
            Notification::cease(cease::SHUTDOWN).to_string(),
            "Cease: Administrative Shutdown (6/2)"
        );
        assert_eq!(Notification::new(4, 0).to_string(), "Hold Timer Expired (4/0)");
        assert_eq!(Notification::new(99, 7).to_string(), "unknown error (99/7)");
        assert_eq!(Notification::read(&[6]), None);
    }

    #[test]
    fn data_that_does_not_fit_into_a_message_is_cut() {
        let long = Notification { code: 6, subcode: 2, data: vec![1; 5000] };
        assert_eq!(long.octets().len(), 4096);
    }
}
