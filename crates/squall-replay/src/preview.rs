//! Describes the frames that a replay will send.

use crate::{Chunk, Reader, Replay, ReplayError};

/// Iterates over the frames of a replay as text.
pub struct Preview {
    source: Reader,
    chunk: Chunk,
    at: usize,
    number: u64,
}

impl Preview {
    /// # Errors
    /// As for [`Reader::open`].
    pub fn open(replay: &Replay, ports: usize) -> Result<Self, ReplayError> {
        let source = Reader::open(replay.clone(), vec![u32::MAX; ports])?;
        Ok(Self { source, chunk: Chunk::default(), at: 0, number: 0 })
    }
}

impl Iterator for Preview {
    /// The port (0 or 1), and a line in the format of `tcpdump -n`.
    type Item = (u8, String);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.chunk.departures.len() {
            // Errors in captures end the preview; the run reports them.
            self.source.fill(&mut self.chunk).ok().filter(|more| *more)?;
            self.at = 0;
        }
        let octets = self.chunk.frame(self.at);
        let line = squall_wire::summary(squall_wire::link::ETHERNET, octets, octets.len());
        let port = self.chunk.departures[self.at].port;
        (self.at, self.number) = (self.at + 1, self.number + 1);
        Some((port, format!("#{} {line}", self.number)))
    }
}
