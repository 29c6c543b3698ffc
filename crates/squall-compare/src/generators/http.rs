//! A server for HTTP clients under test. It answers each request with an empty body, and serves one
//! connection at a time, because each client opens only one.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// TCP port of the server.
pub const PORT: u16 = 8080;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const LOOK: Duration = Duration::from_millis(5);
/// Maximum length of the head of a request, octets.
const LONGEST_HEAD: usize = 64 << 10;

/// A server that runs until dropped.
pub struct Server {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on this address in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The same as of [`TcpListener::bind`].
    pub fn start(address: &str, port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((address, port))?;
        listener.set_nonblocking(true)?;
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                match listener.accept() {
                    // An error ends the connection, which the client then reports.
                    Ok((socket, _)) => drop(serve(socket, &ended)),
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        });
        Ok(Self { end, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut socket: TcpStream, ended: &AtomicBool) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_nodelay(true)?;
    // A timeout, so the end of the server is noticed between two requests.
    socket.set_read_timeout(Some(10 * LOOK))?;
    let (mut unread, mut octets) = (Vec::new(), vec![0; 64 << 10]);
    while !ended.load(Ordering::Relaxed) {
        match socket.read(&mut octets) {
            Ok(0) => break,
            Ok(n) => unread.extend_from_slice(&octets[..n]),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                continue;
            }
            Err(error) => return Err(error),
        }
        while let Some(length) = request(&unread)? {
            unread.drain(..length);
            socket.write_all(ANSWER)?;
        }
    }
    Ok(())
}

/// Length of the first request including its body; `None` while it is incomplete.
fn request(octets: &[u8]) -> io::Result<Option<usize>> {
    let Some(end) = octets.windows(4).position(|four| four == b"\r\n\r\n") else {
        return match octets.len() > LONGEST_HEAD {
            true => Err(io::Error::other("the head of a request is too long")),
            false => Ok(None),
        };
    };
    let head = String::from_utf8_lossy(&octets[..end]).to_ascii_lowercase();
    let field = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let body = field.map_or(Ok(0), |text| text.trim().parse::<usize>());
    let body = body.map_err(|_| io::Error::other("the length of a body is no number"))?;
    let length = end + 4 + body;
    Ok((octets.len() >= length).then_some(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_with_its_body() {
        let post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(request(&post[..post.len() - 1]).unwrap(), None);
        assert_eq!(request(post).unwrap(), Some(post.len()));
        assert_eq!(request(b"GET / HTTP/1.1\r\n\r\nGET").unwrap(), Some(18));
        assert!(request(b"GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n").is_err());
        assert!(request(&vec![b'a'; LONGEST_HEAD + 1]).is_err());
    }

    #[test]
    fn requests_on_one_connection_are_answered_one_by_one() {
        let port = 34_000 + (std::process::id() % 20_000) as u16;
        let server = Server::start("127.0.0.1", port).unwrap();
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut answer = vec![0; ANSWER.len()];
        for _ in 0..3 {
            socket.write_all(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab").unwrap();
            socket.read_exact(&mut answer).unwrap();
            assert_eq!(answer, ANSWER);
        }
        drop(server);
    }
}
