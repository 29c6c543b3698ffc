//! The hosts of a stream's frames, as the values that its program asks for.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use squall_host::{BoundHost, HostTable};
use squall_plan::{HostField, StreamHosts};
use squall_program::{Supplied, Supply};
use squall_units::MacAddr;

use crate::hosts::HostTables;

/// Takes the hosts of the groups in turn. While it exists, hosts keep their addresses at the end of
/// the run.
#[derive(Debug)]
pub(crate) struct HostSupply {
    src: Option<Turns>,
    dst: Option<Turns>,
    fields: Vec<HostField>,
}

/// A reader of a table.
#[derive(Debug)]
struct Turns {
    table: Arc<HostTable>,
    at: u32,
    /// The host of the next frame, if it is already known.
    next: Option<BoundHost>,
    /// The last host that was found.
    last: BoundHost,
}

/// In place of a host that is not there.
const UNBOUND: BoundHost = BoundHost {
    number: 0,
    mac: MacAddr([0; 6]),
    address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    next_hop: MacAddr([0; 6]),
    session: 0,
};

impl HostSupply {
    /// `None` if this run has no table of the groups or routes: a stream that was added during the
    /// run can only use those that were used from the start. `first` is the place in the table at which a
    /// worker begins, different for each that shares the stream.
    pub fn new(hosts: &StreamHosts, tables: &HostTables, first: u64) -> Option<Self> {
        let turns = |number: Option<usize>| match number {
            Some(number) => Some(Some(Turns::new(tables.get(number)?.as_ref()?, first))),
            None => Some(None),
        };
        let dst = turns(hosts.learnt.map(|routes| routes.table).or(hosts.dst))?;
        Some(Self { src: turns(hosts.src)?, dst, fields: hosts.fields.clone() })
    }
}

impl Supply for HostSupply {
    fn is_ready(&mut self) -> bool {
        self.src.iter_mut().chain(&mut self.dst).all(Turns::is_ready)
    }

    fn draw(&mut self, n: usize, out: &mut Supplied) {
        for j in 0..n {
            let src = self.src.as_mut().map_or(UNBOUND, Turns::take);
            let dst = self.dst.as_mut().map_or(UNBOUND, Turns::take);
            let session = if self.src.is_some() { src.session } else { dst.session };
            for (column, field) in out.iter_mut().zip(&self.fields) {
                column[j] = match field {
                    HostField::SourceMac => bits(src.mac),
                    HostField::Source => address_bits(src.address),
                    HostField::NextHop => bits(src.next_hop),
                    HostField::DestinationMac => bits(dst.mac),
                    HostField::Destination => address_bits(dst.address),
                    // The next hop of a client of PPPoE is the other end of its session.
                    HostField::Concentrator => bits(dst.next_hop),
                    HostField::Session => session.into(),
                };
            }
        }
    }
}

impl Turns {
    fn new(table: &Arc<HostTable>, first: u64) -> Self {
        table.begin_use();
        Self { table: table.clone(), at: first as u32, next: None, last: UNBOUND }
    }

    #[inline]
    fn is_ready(&mut self) -> bool {
        // The next host may have lost its address after it was found.
        let next = self.next.and_then(|host| self.table.get(host.number));
        self.next = next.or_else(|| self.table.next(&mut self.at));
        self.last = self.next.unwrap_or(self.last);
        self.next.is_some()
    }

    /// The host of the next frame. If all have lost their addresses since the frame was scheduled,
    /// it is the last one, because a frame that is in a slot can no longer be left out.
    #[inline]
    fn take(&mut self) -> BoundHost {
        let next = self.next.take().or_else(|| self.table.next(&mut self.at));
        self.last = next.unwrap_or(self.last);
        self.last
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.table.end_use();
    }
}

fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn bits(MacAddr([a, b, c, d, e, f]): MacAddr) -> u128 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f]).into()
}
