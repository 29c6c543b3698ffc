//! Settings that both ends announce (RFC 9114 section 7.2.4), and bounds for what a peer may do.

use std::fmt;

/// Numbers of settings (RFC 9114 section 7.2.4.1, RFC 9204 section 5, RFC 9220, RFC 9297).
pub mod setting {
    pub const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
    pub const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
    pub const QPACK_BLOCKED_STREAMS: u64 = 0x7;
    pub const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;
    pub const H3_DATAGRAM: u64 = 0x33;
}

/// The settings that this end announces when a connection begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    list: Box<[(u64, u64)]>,
    pub(super) qpack_table: u32,
    pub(super) qpack_blocked: u16,
    pub(super) connect_protocol: bool,
}

impl Settings {
    /// `list`: the pairs of the SETTINGS frame, in this order, unknown numbers included. Settings
    /// that are not in the list keep their defaults: there is no dynamic table of QPACK, for
    /// example.
    ///
    /// # Errors
    /// A number or value that RFC 9114 forbids, a number twice, a table of more than 64 KiB, more
    /// than 16 streams that may wait for it, or more than 64 pairs.
    pub fn new(list: &[(u64, u64)]) -> Result<Self, SettingsError> {
        if list.len() > MOST_PAIRS {
            return Err(SettingsError::Pairs(list.len()));
        }
        let mut settings =
            Self { list: list.into(), qpack_table: 0, qpack_blocked: 0, connect_protocol: false };
        for (nth, &(number, value)) in list.iter().enumerate() {
            if list[..nth].iter().any(|(other, _)| *other == number) {
                return Err(SettingsError::Twice(number));
            }
            let wrong = SettingsError::Value { number, value };
            if !is_allowed(number, value) || number.max(value) > MOST_INTEGER {
                return Err(wrong);
            }
            match number {
                setting::QPACK_MAX_TABLE_CAPACITY => {
                    let table = u32::try_from(value).ok().filter(|table| *table <= MOST_TABLE);
                    settings.qpack_table = table.ok_or(wrong)?;
                }
                setting::QPACK_BLOCKED_STREAMS => {
                    let streams = u16::try_from(value).ok().filter(|n| *n <= MOST_BLOCKED);
                    settings.qpack_blocked = streams.ok_or(wrong)?;
                }
                setting::ENABLE_CONNECT_PROTOCOL => settings.connect_protocol = value == 1,
                _ => {}
            }
        }
        Ok(settings)
    }

    /// The pairs, in the order in which they are sent.
    pub fn list(&self) -> &[(u64, u64)] {
        &self.list
    }
}

/// Bounds of a SETTINGS frame of this end: it is copied for each connection.
const MOST_PAIRS: usize = 64;
/// Bound of the memory for a peer's table.
const MOST_TABLE: u32 = 64 << 10;
/// Bound of the streams that wait for insertions.
const MOST_BLOCKED: u16 = 16;
/// The largest integer of QUIC (RFC 9000 section 16).
const MOST_INTEGER: u64 = (1 << 62) - 1;

/// Why [`Settings`] cannot be announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsError {
    Pairs(usize),
    Twice(u64),
    Value { number: u64, value: u64 },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pairs(pairs) => {
                write!(f, "cannot announce {pairs} settings; try at most {MOST_PAIRS}")
            }
            Self::Twice(number) => {
                write!(f, "cannot announce setting {number} twice; try to remove one")
            }
            Self::Value { number, value } => {
                let allowed = match *number {
                    0 | 2..=5 => "another number: this one is reserved",
                    setting::QPACK_MAX_TABLE_CAPACITY => "0 to 65536",
                    setting::QPACK_BLOCKED_STREAMS => "0 to 16",
                    setting::ENABLE_CONNECT_PROTOCOL | setting::H3_DATAGRAM => "0 or 1",
                    _ => "numbers and values below 2^62",
                };
                write!(f, "cannot announce setting {number} with value {value}; try {allowed}")
            }
        }
    }
}

impl std::error::Error for SettingsError {}

/// Announced settings, and bounds at which a peer is stopped. Connections of a program share them;
/// a connection gets the same in each call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub settings: Settings,
    /// Octets of the peer's dynamic table that this end uses, if the peer allows as many.
    pub encoder_table: u32,
    /// Octets of the names and values of a block, plus 32 a field (RFC 9114 section 4.2.2).
    pub head: u32,
    /// Octets of a compressed block.
    pub block: u32,
    /// Octets of compressed blocks whose end has not come, of all streams.
    pub held: u32,
    /// Octets of compressed blocks that wait for insertions, of all streams.
    pub blocked: u32,
    /// Octets of answers to the peer that wait for [`Own::Decoder`](super::Own::Decoder).
    pub control: u16,
    /// Octets of the peer's SETTINGS frame.
    pub settings_octets: u16,
    /// Entries that the peer inserts into the dynamic table between two field blocks.
    pub insertions: u16,
    /// Requests that the peer resets, or has reset by its errors, more than end well.
    pub resets: u16,
    /// Frames that do nothing, more than requests end well.
    pub empty: u16,
    /// Unidirectional streams of unknown types.
    pub streams: u16,
}

impl Limits {
    /// [`head`](Self::head), to be announced as MAX_FIELD_SECTION_SIZE.
    pub const HEAD: u32 = 16 << 10;

    /// The bounds of docs/adr/0065-http2-http3.md.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            encoder_table: 0,
            head: Self::HEAD,
            block: 16 << 10,
            held: 64 << 10,
            blocked: 16 << 10,
            control: 1 << 10,
            settings_octets: 1 << 10,
            insertions: 1 << 10,
            resets: 100,
            empty: 100,
            streams: 100,
        }
    }
}

/// The settings that the peer has announced so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// The largest dynamic table that this end may use, in octets.
    pub qpack_table: u64,
    /// Streams that may wait for it.
    pub qpack_blocked: u64,
    /// The longest field block that the peer takes; `u64::MAX` if it has set no limit.
    pub max_field_section: u64,
    /// Whether extended CONNECT is allowed (RFC 9220).
    pub connect_protocol: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            qpack_table: 0,
            qpack_blocked: 0,
            max_field_section: u64::MAX,
            connect_protocol: false,
        }
    }
}

impl PeerSettings {
    /// Applies a received pair. Returns whether the number is known.
    pub(super) fn apply(&mut self, number: u64, value: u64) -> bool {
        match number {
            setting::QPACK_MAX_TABLE_CAPACITY => self.qpack_table = value,
            setting::QPACK_BLOCKED_STREAMS => self.qpack_blocked = value,
            setting::MAX_FIELD_SECTION_SIZE => self.max_field_section = value,
            setting::ENABLE_CONNECT_PROTOCOL => self.connect_protocol = value == 1,
            _ => return false,
        }
        true
    }
}

/// RFC 9114 section 7.2.4.1 (settings that only HTTP/2 has), RFC 8441 section 3, RFC 9297 section
/// 2.1.1.
pub(super) fn is_allowed(number: u64, value: u64) -> bool {
    match number {
        0 | 2..=5 => false,
        setting::ENABLE_CONNECT_PROTOCOL | setting::H3_DATAGRAM => value <= 1,
        _ => true,
    }
}
