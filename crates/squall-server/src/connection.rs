//! State of a TCP connection: actions to run when it closes, and time limits for idle clients.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::places::Place;

/// Time limit from the first octet of a request to the end of its header, and from the start of the
/// connection to the first authorized request.
const HEADER: Duration = Duration::from_secs(10);
/// Time limit between two requests. It is long, because clients keep connections open for later
/// requests, and leases depend on them.
const IDLE: Duration = Duration::from_secs(3600);

/// The client's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// `None` for a Unix socket.
    pub address: Option<SocketAddr>,
    /// The user of the client's process, if the kernel knows it.
    pub user: Option<u32>,
}

impl Peer {
    /// The client's address; the loopback address for a Unix socket.
    pub fn ip(&self) -> IpAddr {
        self.address.map_or(IpAddr::from([127, 0, 0, 1]), |address| address.ip())
    }
}

/// Shown as `127.0.0.1:5000 (user 1000)`.
impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.address {
            Some(address) => write!(f, "{address}")?,
            None => f.write_str("unix")?,
        }
        self.user.map_or(Ok(()), |user| write!(f, " (user {user})"))
    }
}

/// State of a connection, available in the extensions of every request.
pub struct Connection {
    pub peer: Peer,
    /// Actions to run when the connection closes.
    at_end: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    /// Owners named by requests on this connection.
    owners: Mutex<BTreeSet<String>>,
    opened: Instant,
    requests: AtomicUsize,
    /// Time of the first octet after the last request, in milliseconds after `opened`; 0 if there
    /// is none.
    first: AtomicU64,
    idle_since: AtomicU64,
    http2: AtomicUsize,
    /// Whether an authorized request has arrived on it.
    known: AtomicBool,
    /// The connection's slot, which the socket owns.
    place: Weak<Place>,
}

impl Connection {
    pub fn new(peer: Peer, place: &Arc<Place>) -> Arc<Self> {
        Arc::new(Self {
            peer,
            at_end: Mutex::default(),
            owners: Mutex::default(),
            opened: Instant::now(),
            requests: AtomicUsize::new(0),
            first: AtomicU64::new(0),
            idle_since: AtomicU64::new(0),
            http2: AtomicUsize::new(0),
            known: AtomicBool::new(false),
            place: Arc::downgrade(place),
        })
    }

    /// Adds an action to run when the connection closes for any reason.
    pub fn at_end(&self, what: impl FnOnce() + Send + 'static) {
        self.at_end.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(what));
    }

    /// Whether this is the first request from `owner` on the connection. Remembers the owner.
    pub fn is_first_of(&self, owner: &str) -> bool {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        !owners.contains(owner) && owners.insert(owner.to_owned())
    }

    /// Notes an authorized request. The connection keeps its slot from then on.
    pub(crate) fn is_known(&self) {
        self.known.store(true, Ordering::Relaxed);
        if let Some(place) = self.place.upgrade() {
            place.is_known();
        }
    }

    /// Returns `None` if the connection keeps its slot. If all kept slots are taken, another client
    /// may get this slot, and the result is the number of kept slots.
    pub(crate) fn is_not_kept(&self) -> Option<usize> {
        self.place.upgrade().and_then(|place| place.is_not_kept())
    }

    /// Marks a request as in progress until the guard is dropped.
    pub(crate) fn request(self: &Arc<Self>) -> UnderWay {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.first.store(0, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    /// Whether the client has taken too long for the rest of a header, or for another request.
    pub(crate) fn is_overdue(&self) -> bool {
        if self.requests.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let now = self.now();
        // A client that stays silent or whose requests are all refused loses its slot soon, because
        // slots are limited.
        if !self.known.load(Ordering::Relaxed) && Duration::from_millis(now) > HEADER {
            return true;
        }
        let since =
            |at: &AtomicU64| Duration::from_millis(now.saturating_sub(at.load(Ordering::Relaxed)));
        // Does not apply to HTTP/2, because it has frames between requests, which start no header;
        // h2 has its own limits.
        let header =
            self.http2.load(Ordering::Relaxed) != HTTP2 && self.first.load(Ordering::Relaxed) != 0;
        (header && since(&self.first) > HEADER) || since(&self.idle_since) > IDLE
    }

    fn read(&self, octets: &[u8]) {
        let known = self.http2.load(Ordering::Relaxed);
        if known < HTTP2 {
            let same = octets.iter().zip(&PREFACE[known..]).take_while(|(a, b)| a == b).count();
            let whole = same == octets.len() || known + same == HTTP2;
            self.http2.store(if whole { known + same } else { OTHER }, Ordering::Relaxed);
        }
        if self.requests.load(Ordering::Relaxed) == 0 {
            // Keep the time of the first octet, because the limit applies to the whole header.
            _ = self.first.compare_exchange(0, self.now(), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Milliseconds after `opened`. Never 0, which means "none" in `first`.
    fn now(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }
}

/// The HTTP/2 connection preface (RFC 9113 section 3.4), up to its first line end. `http2` counts
/// its matching octets; `HTTP2`: all, `OTHER`: another protocol.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";
const HTTP2: usize = PREFACE.len();
const OTHER: usize = usize::MAX;

pub(crate) struct UnderWay(Arc<Connection>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.now(), Ordering::Relaxed);
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A socket that reports its reads and its close to its [`Connection`].
pub(crate) struct TrackedSocket<S> {
    stream: S,
    connection: Arc<Connection>,
    _place: Arc<Place>,
}

impl<S> TrackedSocket<S> {
    pub fn new(stream: S, connection: Arc<Connection>, place: Arc<Place>) -> Self {
        Self { stream, connection, _place: place }
    }
}

impl<S> Drop for TrackedSocket<S> {
    fn drop(&mut self) {
        let list = std::mem::take(
            &mut *self.connection.at_end.lock().unwrap_or_else(PoisonError::into_inner),
        );
        list.into_iter().for_each(|what| what());
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let new = &buffer.filled()[before..];
        if !new.is_empty() {
            self.connection.read(new);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Places;

    fn connection() -> Arc<Connection> {
        let peer = Peer { address: None, user: None };
        Connection::new(peer, &Arc::new(Places::new(4).take(&peer)))
    }

    #[test]
    fn http2_is_known_by_its_first_octets_however_they_come() {
        for (pieces, http2) in [
            (&["PRI * HTTP/2.0\r\n\r\nSM"][..], true),
            (&["P", "RI * HT", "TP/2.0\r\n"], true),
            (&["POST / HTTP/1.1"], false),
            (&["P", "UT / HTTP/1.1"], false),
            (&["GET"], false),
        ] {
            let connection = connection();
            pieces.iter().for_each(|piece| connection.read(piece.as_bytes()));
            assert_eq!(connection.http2.load(Ordering::Relaxed) == HTTP2, http2, "{pieces:?}");
        }
    }

    #[test]
    fn a_header_has_begun_with_its_first_octet_and_not_while_a_request_is_answered() {
        let connection = connection();
        assert_eq!(connection.first.load(Ordering::Relaxed), 0);
        connection.read(b"G");
        assert!(connection.first.load(Ordering::Relaxed) > 0);
        let request = connection.request();
        connection.read(b"body");
        assert_eq!(connection.first.load(Ordering::Relaxed), 0);
        drop(request);
        assert!(!connection.is_overdue());
    }
}
