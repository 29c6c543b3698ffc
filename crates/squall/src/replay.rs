//! Captures as what is sent: where they are read from, and what became of them.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use squall_engine::Replayed;
use squall_port::ETHERNET;
use squall_replay::{Input, Replay};

use crate::{
    Error,
    report::{PortReport, ReplayPort, ReplayRead, ReplayReport},
};

/// The capture at `path`; `-` is the standard input, which can be read once.
///
/// ```
/// assert!(squall::replay::input("-".as_ref()).once);
/// ```
pub fn input(path: &Path) -> Input {
    let name = path.display().to_string();
    if name == "-" {
        let open = || Ok(Box::new(io::stdin()) as Box<dyn Read + Send>);
        return Input { name: "standard input".into(), open: Arc::new(open), once: true };
    }
    let path = path.to_owned();
    // A pipe is empty when it has been read.
    let once = path.metadata().is_ok_and(|about| !about.is_file());
    let open = move || File::open(&path).map(|file| Box::new(file) as Box<dyn Read + Send>);
    Input { name, open: Arc::new(open), once }
}

/// Takes the frames of captures that `expression` takes, in the language of tcpdump.
///
/// # Errors
/// [`Error::Usage`] for an expression that says nothing, [`Error::Environment`] without libpcap.
pub fn filter(expression: &str) -> Result<Arc<squall_bpf::classic::Filter>, Error> {
    let filter = crate::filter::compile_file(expression, ETHERNET)?;
    Ok(Arc::new(filter.program.clone()))
}

/// `ports` are those of the replay, in its order.
pub(crate) fn report(replay: &Replay, replayed: &Replayed, ports: &[PortReport], retried: &[u64]) -> ReplayReport {
    let (tally, sent) = (replayed.source.tally(), replayed.source.sent());
    let of_port = |((sent, port), retried): ((&squall_replay::Sent, &PortReport), &u64)| ReplayPort {
        port: port.name.clone(),
        attempted: sent.attempted,
        successful: sent.successful,
        failed: sent.failed,
        truncated: sent.truncated,
        retried: *retried,
    };
    ReplayReport {
        files: replay.inputs.iter().map(|input| input.name.clone()).collect(),
        loops: replayed.source.loops(),
        packets: sent.iter().map(|sent| sent.successful).sum(),
        octets: sent.iter().map(|sent| sent.octets).sum(),
        read: ReplayRead {
            packets: tally.packets,
            octets: tally.octets,
            unwanted: tally.unwanted,
            too_long: tally.too_long,
            not_ethernet: tally.not_ethernet,
            cut: tally.cut,
            backward: replayed.source.backward(),
        },
        ports: sent.iter().zip(ports).zip(retried).map(of_port).collect(),
        starved_s: replayed.starved.as_secs_f64(),
        fault: replayed.error.as_ref().map(ToString::to_string),
    }
}
