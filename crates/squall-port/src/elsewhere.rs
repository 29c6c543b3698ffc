//! `elsewhere:NAME` represents a port of another node: a run on several machines has the same ports
//! on each of them, and only a node's own ports are open. It neither sends nor receives.

use std::io;

use crate::{
    Address, BATCH, ETHERNET, Nanos, Port, PortFacts, RxQueue, Segmentation, Timestamps, TxQueue,
};

pub fn open(address: &Address) -> io::Result<Box<dyn Port>> {
    if address.name().is_empty() {
        let problem = "expected the name of a node\n  try elsewhere:node2";
        return Err(address.error(problem).into());
    }
    let text = address.to_string();
    address.clone().finish(&[])?;
    Ok(Box::new(Elsewhere(PortFacts {
        kind: KIND,
        address: text,
        max_frame: 65_535,
        speed_bps: None,
        mac: None,
        tx_queues: 64,
        rx_queues: 0,
        timestamps: Timestamps::None,
        virtual_time: false,
        batch: BATCH,
        segmentation: Segmentation::Engine,
        link_type: ETHERNET,
        ahead: Nanos::ZERO,
    })))
}

/// The kind in an address.
pub const KIND: &str = "elsewhere";

struct Elsewhere(PortFacts);

impl Elsewhere {
    fn refusal(&self) -> io::Error {
        io::Error::new(io::ErrorKind::Unsupported, format!("{} is another node's", self.0.address))
    }
}

impl Port for Elsewhere {
    fn facts(&self) -> &PortFacts {
        &self.0
    }

    fn open_tx(&mut self, _queue: u32, _max_frame: u32) -> io::Result<Box<dyn TxQueue>> {
        Err(self.refusal())
    }

    fn open_rx(&mut self, _queue: u32) -> io::Result<Box<dyn RxQueue>> {
        Err(self.refusal())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_a_name_and_opens_no_queue() {
        let open = |address: &str| open(&address.parse().expect("an address"));
        let mut port = open("elsewhere:node2/eth1").expect("it needs nothing");
        assert_eq!(port.facts().rx_queues, 0);
        assert!(port.open_tx(0, 60).is_err() && port.open_rx(0).is_err());
        assert!(open("elsewhere:").is_err() && open("elsewhere:a,queues=2").is_err());
    }
}
