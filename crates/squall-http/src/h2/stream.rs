//! The state of a stream.

/// No content-length, or one that is not checked.
pub(super) const ANY_LENGTH: u64 = u64::MAX;

/// A stream that is open or half closed, or that this end has reset while the peer may not know it
/// yet (RFC 9113 section 5.1). There may be many: 32 octets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// Octets of the body that are still to come, or [`ANY_LENGTH`].
    pub remaining: u64,
    pub id: u32,
    /// Octets that this end may send: negative after the peer has made its windows smaller.
    pub send: i32,
    /// Octets that the peer may still send.
    pub receive: i32,
    /// Octets that were consumed, and not yet returned to the peer by WINDOW_UPDATE.
    pub credit: u32,
    /// Opened by this end, and its head was not sent.
    pub opening: bool,
    pub local_ended: bool,
    pub remote_ended: bool,
    /// Reset by this end: further frames are ignored.
    pub reset: bool,
    /// Whether the request, or the final response, was received. A further block is trailers.
    pub headed: bool,
    /// Whether any data came.
    pub data: bool,
}

impl Stream {
    pub fn new(id: u32, send: u32, receive: u32) -> Self {
        let window = |octets| i32::try_from(octets).expect("windows are below 2^31");
        Self {
            remaining: ANY_LENGTH,
            id,
            send: window(send),
            receive: window(receive),
            credit: 0,
            opening: false,
            local_ended: false,
            remote_ended: false,
            reset: false,
            headed: false,
            data: false,
        }
    }
}
