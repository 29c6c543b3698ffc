//! Control sockets of daemons: a text for each request, and a text in reply.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

/// Longest time to wait for a reply: a daemon with a million routes can be busy for seconds.
const REPLY: Duration = Duration::from_secs(30);
/// Time between two questions whether to wait on.
const WAIT: Duration = Duration::from_millis(100);

/// A connection to a daemon's control socket.
pub struct ControlSocket {
    stream: UnixStream,
    text: String,
    /// Length of the first complete reply in a text.
    reply: fn(&str) -> Option<usize>,
}

impl ControlSocket {
    /// Connects to the socket at `path`, and waits for the daemon's greeting. `stopped` ends the
    /// wait for it.
    ///
    /// # Errors
    /// There is no socket, or nothing listens there, or the daemon sends no complete reply.
    pub fn open(
        path: &Path,
        reply: fn(&str) -> Option<usize>,
        stopped: &dyn Fn() -> bool,
    ) -> io::Result<Self> {
        let mut control = Self::without_greeting(path, reply)?;
        control.read(stopped)?;
        Ok(control)
    }

    /// Connects to the socket at `path` of a daemon that waits for the first request.
    ///
    /// # Errors
    /// There is no socket, or nothing listens there.
    pub fn without_greeting(path: &Path, reply: fn(&str) -> Option<usize>) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(WAIT))?;
        Ok(Self { stream, text: String::new(), reply })
    }

    /// Sends a request, and returns its reply. `stopped` ends the wait for it.
    ///
    /// # Errors
    /// The connection is closed, or the reply does not come.
    pub fn ask(&mut self, request: &str, stopped: &dyn Fn() -> bool) -> io::Result<String> {
        self.stream.write_all(request.as_bytes())?;
        self.read(stopped)
    }

    fn read(&mut self, stopped: &dyn Fn() -> bool) -> io::Result<String> {
        let until = Instant::now() + REPLY;
        let mut buffer = [0; 4096];
        loop {
            if let Some(len) = (self.reply)(&self.text) {
                return Ok(self.text.drain(..len).collect());
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.text.push_str(&String::from_utf8_lossy(&buffer[..len])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if stopped() || Instant::now() > until {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn line(text: &str) -> Option<usize> {
        text.find('\n').map(|at| at + 1)
    }

    #[test]
    fn replies_come_whole_and_a_stop_ends_the_wait() {
        let path = std::env::temp_dir().join(format!("squall-control-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let daemon = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"rea").unwrap();
            std::thread::sleep(Duration::from_millis(20));
            stream.write_all(b"dy\n").unwrap();
            let mut request = [0; 5];
            stream.read_exact(&mut request).unwrap();
            assert_eq!(&request, b"show\n");
            stream.write_all(b"one\ntwo\n").unwrap();
            stream.read_exact(&mut request).unwrap();
            stream.read_exact(&mut request).unwrap();
            assert!(ended.recv().is_err());
        });
        let mut control = ControlSocket::open(&path, line, &|| false).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(control.ask("show\n", &|| false).unwrap(), "one\n");
        assert_eq!(control.ask("show\n", &|| false).unwrap(), "two\n");
        let stopped = control.ask("show\n", &|| true).unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::TimedOut);
        drop(end);
        daemon.join().unwrap();
        let closed = control.ask("show\n", &|| false).unwrap_err();
        assert!(matches!(closed.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe));
    }

    #[test]
    fn a_stop_ends_the_wait_for_the_greeting() {
        let name = format!("squall-greeting-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // The kernel completes the connection, but no process accepts it.
        let listener = UnixListener::bind(&path).unwrap();
        let opened = ControlSocket::open(&path, line, &|| true);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(opened.err().map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
        drop(listener);
    }
}
