//! Counts edits, and edits that could not be applied.

/// An operation of an editor, named by its option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    Packets,
    Window,
    Dedup,
    Time,
    Efcs,
    Unfold,
    Dlt,
    Macs,
    Vlan,
    MtuTrunc,
    Fixlen,
    Truncate,
    Pad,
    Tos,
    Tclass,
    Flowlabel,
    Ttl,
    Portmap,
    TcpSequence,
    Addresses,
    Fuzz,
    Fixcsum,
    Fragment,
    Snaplen,
}

impl Operation {
    pub const ALL: [Self; 24] = [
        Self::Packets,
        Self::Window,
        Self::Dedup,
        Self::Time,
        Self::Efcs,
        Self::Unfold,
        Self::Dlt,
        Self::Macs,
        Self::Vlan,
        Self::MtuTrunc,
        Self::Fixlen,
        Self::Truncate,
        Self::Pad,
        Self::Tos,
        Self::Tclass,
        Self::Flowlabel,
        Self::Ttl,
        Self::Portmap,
        Self::TcpSequence,
        Self::Addresses,
        Self::Fuzz,
        Self::Fixcsum,
        Self::Fragment,
        Self::Snaplen,
    ];

    /// The option's name, such as `ttl` or `tcp-sequence`. `macs` and `addresses` cover several
    /// options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Window => "from-to",
            Self::Dedup => "dedup",
            Self::Time => "time",
            Self::Efcs => "efcs",
            Self::Unfold => "unfold",
            Self::Dlt => "dlt",
            Self::Macs => "macs",
            Self::Vlan => "enet-vlan",
            Self::MtuTrunc => "mtu-trunc",
            Self::Fixlen => "fixlen",
            Self::Truncate => "truncate",
            Self::Pad => "pad",
            Self::Tos => "tos",
            Self::Tclass => "tclass",
            Self::Flowlabel => "flowlabel",
            Self::Ttl => "ttl",
            Self::Portmap => "portmap",
            Self::TcpSequence => "tcp-sequence",
            Self::Addresses => "addresses",
            Self::Fuzz => "fuzz",
            Self::Fixcsum => "fixcsum",
            Self::Fragment => "fragment",
            Self::Snaplen => "snaplen",
        }
    }
}

/// The reason why an edit could not be applied to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The frame has no network packet. It is dropped if another link type is requested.
    NoPacket,
    /// A header is truncated or contradictory.
    Headers,
    /// Part of the packet was not captured, or the rest of its datagram is in other fragments, so
    /// checksums cannot be computed, and the packet cannot be fragmented.
    Cut,
    /// A source route determines which address the checksum covers.
    Routed,
    /// The packet would be too long for a length field, or longer than [`MAX_LEN`](crate::MAX_LEN).
    TooLong,
    /// The MTU leaves less than eight octets after the headers.
    SmallMtu,
}

impl Reason {
    pub const ALL: [Self; 6] =
        [Self::NoPacket, Self::Headers, Self::Cut, Self::Routed, Self::TooLong, Self::SmallMtu];

    pub fn text(self) -> &'static str {
        match self {
            Self::NoPacket => "no network packet found after the link header",
            Self::Headers => "headers cut off or contradictory",
            Self::Cut => "not captured whole: no checksum computed, no fragments made",
            Self::Routed => "source route: no checksum computed",
            Self::TooLong => "would be too long",
            Self::SmallMtu => "headers alone fill the MTU: no fragments made",
        }
    }
}

/// Counters of an editor; all of them count packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub packets_in: u64,
    pub packets_out: u64,
    /// Input packets that gave no output.
    pub dropped: u64,
    /// Input packets whose octets, length or time changed.
    pub changed: u64,
    /// Packets changed or dropped by each [`Operation`].
    pub changed_by: [u64; Operation::ALL.len()],
    pub dropped_by: [u64; Operation::ALL.len()],
    /// Packets with each [`Reason`].
    pub refused: [u64; Reason::ALL.len()],
}

impl Counts {
    pub fn changed_by(&self, operation: Operation) -> u64 {
        self.changed_by[operation as usize]
    }

    pub fn dropped_by(&self, operation: Operation) -> u64 {
        self.dropped_by[operation as usize]
    }

    pub fn refused(&self, reason: Reason) -> u64 {
        self.refused[reason as usize]
    }

    /// Adds the counters of another editor.
    pub fn merge(&mut self, other: &Self) {
        self.packets_in += other.packets_in;
        self.packets_out += other.packets_out;
        self.dropped += other.dropped;
        self.changed += other.changed;
        let add = |to: &mut [u64], from: &[u64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from)
        };
        add(&mut self.changed_by, &other.changed_by);
        add(&mut self.dropped_by, &other.dropped_by);
        add(&mut self.refused, &other.refused);
    }

    pub(crate) fn add(&mut self, done: &Done, dropped_by: Option<Operation>) {
        if let Some(operation) = dropped_by {
            self.dropped += 1;
            self.dropped_by[operation as usize] += 1;
        } else if done.operations != 0 {
            self.changed += 1;
            bits(done.operations, &mut self.changed_by);
        }
        bits(u32::from(done.reasons), &mut self.refused);
    }
}

fn bits(mut set: u32, counts: &mut [u64]) {
    while set != 0 {
        counts[set.trailing_zeros() as usize] += 1;
        set &= set - 1;
    }
}

/// The operations and reasons that apply to a packet, one bit each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    operations: u32,
    reasons: u8,
}

impl Done {
    #[inline]
    pub fn by(&mut self, operation: Operation, changed: bool) {
        self.operations |= u32::from(changed) << operation as u8;
    }

    #[inline]
    pub fn refuse(&mut self, reason: Reason) {
        self.reasons |= 1 << reason as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_stand_in_the_order_of_their_numbers() {
        assert!(Operation::ALL.iter().enumerate().all(|(i, operation)| *operation as usize == i));
        assert!(Reason::ALL.iter().enumerate().all(|(i, reason)| *reason as usize == i));
    }
}
