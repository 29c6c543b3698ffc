//! Makes a tcpprep cache, which assigns each packet of a capture to one of two ports.

use std::path::Path;

use squall_measure::flow::Link;
use squall_pcap::{CaptureError, CaptureReader};
use squall_port::ETHERNET;
use squall_port_linux::filter;
use squall_replay::{Cache, Side, Split, Splitter, input};
use squall_units::Cannot;

pub use squall_replay::{cache, split};

use crate::Error;

/// A cache, and the reason why it may be incomplete.
#[derive(Debug)]
pub struct Prepared {
    pub cache: Cache,
    /// The damage in the capture at which the cache ends, if any.
    pub fault: Option<CaptureError>,
}

/// Assigns the packets of the capture at `path` to two ports, where `-` is standard input. Reads
/// the capture twice if the rule requires it. Packets that cannot become Ethernet frames are marked
/// as not sent.
///
/// # Errors
/// [`Error::Usage`] if the capture cannot be read (a second time), if it does not reveal the sides
/// of its hosts, or if a filter is invalid.
pub fn prepare(path: &Path, split: &Split, comment: &str) -> Result<Prepared, Error> {
    let mut split = split.clone();
    if let Some(select) = &mut split.select {
        select.compile(|expression| {
            filter::compile_file(expression, ETHERNET).map(|filter| filter.program.clone())
        })?;
    }
    let input = input(path);
    let mut splitter = Splitter::new(&split, Link::Ethernet);
    if splitter.must_learn() {
        if input.once {
            return Err(Error::Usage(format!(
                "{}: it can only be read once, and must be read completely to find clients and \
                 servers\n  try a file, or --auto first",
                input.name
            )));
        }
        // Errors are reported by the second pass.
        let _ = each(&input, |frame, number| splitter.learn(frame.unwrap_or_default(), number))?;
        splitter.learned().map_err(|error| Error::Usage(format!("{}: {error}", input.name)))?;
    }
    let mut cache = Cache::new(comment);
    let fault = each(&input, |frame, number| {
        cache.push(frame.map_or(Side::Skip, |frame| splitter.side(frame, number)));
    })?;
    Ok(Prepared { cache, fault })
}

/// Calls `show` with each packet and its number. The packet is an Ethernet frame, or `None` if it
/// cannot become one. Returns the error at which the capture ended early.
fn each(
    input: &squall_replay::Input,
    mut show: impl FnMut(Option<&[u8]>, u64),
) -> Result<Option<CaptureError>, Error> {
    let file = (input.open)().map_err(|error| Cannot::read(&input.name, &error))?;
    let mut reader = CaptureReader::from_read(file)
        .map_err(|error| CaptureError { path: Some((&input.name).into()), ..error })?;
    loop {
        match reader.next() {
            Ok(None) => return Ok(None),
            Ok(Some(packet)) if packet.link_type.0 == ETHERNET => {
                show(Some(packet.data), packet.number)
            }
            Ok(Some(packet)) => {
                let frame = squall_wire::link::to_ethernet(packet.link_type.0, packet.data);
                show(frame.ok().as_deref(), packet.number);
            }
            Err(fault) => return Ok(Some(fault)),
        }
    }
}

/// # Errors
/// [`Error::Usage`] if the file is not a tcpprep cache.
pub fn read(path: &Path) -> Result<Cache, Error> {
    let octets = squall_profile::read_file(path).map_err(|error| Cannot::read(path, &error))?;
    Cache::parse(&octets).map_err(|error| Error::Usage(format!("{}: {error}", path.display())))
}
