//! `null:` takes every frame at once and sends none: it measures the cost of a program without a
//! port.
//!
//! Options: `virtual` (use virtual time; also `null:virtual`), `queues=N`, `max_frame=OCTETS`.

use std::io;

use crate::{
    Address, BATCH, ETHERNET, Nanos, Port, PortFacts, RxBatch, RxQueue, Segmentation, SendError,
    Slots, Timestamps, TxBatch, TxQueue,
};

pub fn open(address: &Address) -> io::Result<Box<dyn Port>> {
    let mut a = address.clone();
    let virtual_time = a.take_flag("virtual")?.unwrap_or(address.name() == "virtual");
    if !matches!(address.name(), "" | "virtual") {
        return Err(address.error("the null port has no name: try null: or null:virtual").into());
    }
    let queues = a.take_in("queues", 1..=256, 64)?;
    let max_frame = a.take_in("max_frame", 14..=65_535, 65_535)?;
    a.finish(&["virtual", "queues", "max_frame"])?;
    Ok(Box::new(NullPort(PortFacts {
        kind: "null",
        address: address.to_string(),
        max_frame,
        speed_bps: None,
        mac: None,
        tx_queues: queues,
        rx_queues: queues,
        timestamps: Timestamps::None,
        virtual_time,
        batch: BATCH,
        segmentation: Segmentation::Engine,
        link_type: ETHERNET,
        ahead: Nanos::ZERO,
    })))
}

struct NullPort(PortFacts);

impl Port for NullPort {
    fn facts(&self) -> &PortFacts {
        &self.0
    }

    fn open_tx(&mut self, queue: u32, max_frame: u32) -> io::Result<Box<dyn TxQueue>> {
        self.0.check_tx(queue, max_frame)?;
        Ok(Box::new(NullTx { slots: Slots::new(BATCH, max_frame as usize), lent: 0 }))
    }

    fn open_rx(&mut self, queue: u32) -> io::Result<Box<dyn RxQueue>> {
        self.0.check_rx(queue)?;
        Ok(Box::new(NullRx))
    }
}

/// One batch of slots that is lent every time, so that it stays in the first-level cache.
struct NullTx {
    slots: Slots,
    lent: usize,
}

impl TxQueue for NullTx {
    #[inline]
    fn lend(&mut self, want: usize) -> TxBatch<'_> {
        self.lent = want.min(BATCH);
        self.slots.batch(0, self.lent)
    }

    fn reads_due(&self) -> bool {
        false
    }

    #[inline]
    fn send(&mut self, n: usize) -> Result<usize, SendError> {
        assert!(n <= self.lent, "more frames sent than lent");
        self.lent -= n;
        Ok(n)
    }
}

struct NullRx;

impl RxQueue for NullRx {
    fn receive(&mut self) -> io::Result<RxBatch<'_>> {
        Ok(RxBatch::empty())
    }
}
