//! Settings that both ends announce (RFC 9113 section 6.5), and bounds for what a peer may do.

use std::fmt;

use super::{Code, Error, Role, Why};
use crate::hpack::DEFAULT_TABLE;

/// Numbers of settings (RFC 9113 section 6.5.2, RFC 8441 section 3).
pub mod setting {
    pub const HEADER_TABLE_SIZE: u16 = 0x1;
    pub const ENABLE_PUSH: u16 = 0x2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub const MAX_FRAME_SIZE: u16 = 0x5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
}

/// The initial windows of streams and connections (RFC 9113 section 6.9.2).
pub const DEFAULT_WINDOW: u32 = 65_535;
/// The largest window (RFC 9113 section 6.9.1).
pub const MAX_WINDOW: u32 = (1 << 31) - 1;
/// The smallest and largest maximum length of a frame (RFC 9113 section 6.5.2).
pub(super) const FRAME: u32 = 1 << 14;
pub(super) const MOST_FRAME: u32 = (1 << 24) - 1;

/// The settings that this end announces when a connection begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    list: Box<[(u16, u32)]>,
    pub(super) connection_window: u32,
    pub(super) window: u32,
    pub(super) max_frame: u32,
    pub(super) max_streams: u32,
    pub(super) header_table: u32,
    pub(super) push: bool,
    pub(super) connect_protocol: bool,
}

impl Settings {
    /// `list`: the pairs of the SETTINGS frame, in this order, unknown numbers included: they are
    /// part of a client's fingerprint. Settings that are not in the list keep their defaults: the
    /// number of streams is unlimited, for example. `connection_window`: octets that the peer may
    /// send before some are consumed, 65,535 to 2^31-1.
    ///
    /// # Errors
    /// A value that RFC 9113 forbids, a table of more than 64 KiB, or more than 64 pairs.
    pub fn new(list: &[(u16, u32)], connection_window: u32) -> Result<Self, SettingsError> {
        if list.len() > MOST_PAIRS {
            return Err(SettingsError::Pairs(list.len()));
        }
        if !(DEFAULT_WINDOW..=MAX_WINDOW).contains(&connection_window) {
            return Err(SettingsError::ConnectionWindow(connection_window));
        }
        let mut settings = Self {
            list: list.into(),
            connection_window,
            window: DEFAULT_WINDOW,
            max_frame: FRAME,
            max_streams: u32::MAX,
            header_table: DEFAULT_TABLE,
            push: true,
            connect_protocol: false,
        };
        for &(number, value) in list {
            let wrong = || SettingsError::Value { number, value };
            check(number, value).map_err(|_| wrong())?;
            match number {
                setting::HEADER_TABLE_SIZE if value > MOST_TABLE => return Err(wrong()),
                setting::HEADER_TABLE_SIZE => settings.header_table = value,
                setting::ENABLE_PUSH => settings.push = value == 1,
                setting::MAX_CONCURRENT_STREAMS => settings.max_streams = value,
                setting::INITIAL_WINDOW_SIZE => settings.window = value,
                setting::MAX_FRAME_SIZE => settings.max_frame = value,
                setting::ENABLE_CONNECT_PROTOCOL => settings.connect_protocol = value == 1,
                _ => {}
            }
        }
        Ok(settings)
    }

    /// The pairs, in the order in which they are sent.
    pub fn list(&self) -> &[(u16, u32)] {
        &self.list
    }

    /// Octets that the peer may have sent, in all streams, before some are consumed.
    pub fn connection_window(&self) -> u32 {
        self.connection_window
    }

    /// The same for a stream.
    pub fn window(&self) -> u32 {
        self.window
    }
}

/// Bounds of a SETTINGS frame of this end: it is copied for each connection.
const MOST_PAIRS: usize = 64;
/// Bound of the memory for a peer's table.
const MOST_TABLE: u32 = 64 << 10;

/// Why [`Settings`] cannot be announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsError {
    Pairs(usize),
    ConnectionWindow(u32),
    Value { number: u16, value: u32 },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pairs(pairs) => {
                write!(f, "cannot announce {pairs} settings; try at most {MOST_PAIRS}")
            }
            Self::ConnectionWindow(octets) => write!(
                f,
                "cannot announce a connection window of {octets} octets; try {DEFAULT_WINDOW} to \
                 {MAX_WINDOW}"
            ),
            Self::Value { number, value } => {
                let allowed = match *number {
                    setting::HEADER_TABLE_SIZE => "0 to 65536",
                    setting::ENABLE_PUSH | setting::ENABLE_CONNECT_PROTOCOL => "0 or 1",
                    setting::INITIAL_WINDOW_SIZE => "0 to 2147483647",
                    _ => "16384 to 16777215",
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
    /// Octets of the names and values of a block, plus 32 a field (RFC 9113 section 6.5.2).
    pub head: u32,
    /// Octets of a compressed block.
    pub block: u32,
    /// CONTINUATION frames of a block.
    pub continuations: u8,
    /// Octets of answers to the peer (acknowledgments, pongs, resets) that wait for
    /// [`control`](super::Connection::control), and how many.
    pub control: u16,
    pub unanswered: u8,
    /// Streams that the peer resets, or has reset by its errors, more than end well.
    pub resets: u16,
    /// Frames without octets and without an end, more than streams end well.
    pub empty: u16,
}

impl Limits {
    /// [`head`](Self::head), to be announced as MAX_HEADER_LIST_SIZE.
    pub const HEAD: u32 = 16 << 10;

    /// The bounds of docs/adr/0065-http2-http3.md.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            head: Self::HEAD,
            block: 16 << 10,
            continuations: 8,
            control: 1 << 10,
            unanswered: 64,
            resets: 100,
            empty: 100,
        }
    }
}

/// The settings that the peer has announced so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    pub header_table: u32,
    /// Streams that this end may have open; `u32::MAX` if the peer has set no limit.
    pub max_streams: u32,
    pub window: u32,
    pub max_frame: u32,
    /// Whether extended CONNECT is allowed (RFC 8441).
    pub connect_protocol: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            header_table: DEFAULT_TABLE,
            max_streams: u32::MAX,
            window: DEFAULT_WINDOW,
            max_frame: FRAME,
            connect_protocol: false,
        }
    }
}

impl PeerSettings {
    /// Applies a received pair. `role` is that of this end.
    pub(super) fn apply(&mut self, role: Role, number: u16, value: u32) -> Result<(), Error> {
        check(number, value)?;
        match number {
            // A server must not allow push (RFC 9113 section 6.5.2).
            setting::ENABLE_PUSH if role == Role::Client && value == 1 => {
                return Err(Error { code: Code::PROTOCOL_ERROR, why: Why::Setting });
            }
            setting::HEADER_TABLE_SIZE => self.header_table = value,
            setting::MAX_CONCURRENT_STREAMS => self.max_streams = value,
            setting::INITIAL_WINDOW_SIZE => self.window = value,
            setting::MAX_FRAME_SIZE => self.max_frame = value,
            setting::ENABLE_CONNECT_PROTOCOL => self.connect_protocol = value == 1,
            _ => {}
        }
        Ok(())
    }
}

/// RFC 9113 section 6.5.2, RFC 8441 section 3.
fn check(number: u16, value: u32) -> Result<(), Error> {
    let (allowed, code) = match number {
        setting::ENABLE_PUSH | setting::ENABLE_CONNECT_PROTOCOL => {
            (value <= 1, Code::PROTOCOL_ERROR)
        }
        setting::INITIAL_WINDOW_SIZE => (value <= MAX_WINDOW, Code::FLOW_CONTROL_ERROR),
        setting::MAX_FRAME_SIZE => ((FRAME..=MOST_FRAME).contains(&value), Code::PROTOCOL_ERROR),
        _ => return Ok(()),
    };
    if allowed { Ok(()) } else { Err(Error { code, why: Why::Setting }) }
}
