//! Replaces the addresses of a packet in place, without an editor.

use std::net::IpAddr;

use squall_measure::flow::{Fragment, Headers, Link};
use squall_units::be16;

use crate::{
    ip,
    sums::{Delta, TransportSum},
};

/// Sets the addresses of the IP packet in an Ethernet frame; `None`: the packet keeps its own, as
/// it does if the address is of the other family. As in an [`Editor`](crate::Editor), checksums are
/// updated incrementally, and packets in tunnels and in ICMP errors do not change. In addition, the
/// transport checksum is updated if it is in a later fragment.
pub fn set_addresses(frame: &mut [u8], source: Option<IpAddr>, destination: Option<IpAddr>) {
    let headers = Headers::parse(frame, Link::Ethernet);
    let network = headers.network as usize;
    let (len, source_at) = match headers.key.version {
        4 => (4, network + 12),
        6 => (16, network + 8),
        _ => return,
    };
    // A source route ends at another destination, which the transport checksum covers.
    let routed = len == 16 && ip::is_routed(frame, &headers);
    let (mut header, mut transport) = (Delta::default(), Delta::default());
    for (address, place, is_covered) in
        [(source, source_at, true), (destination, source_at + len, !routed)]
    {
        let mut new = [0; 16];
        match address {
            Some(IpAddr::V4(address)) if len == 4 => new[..4].copy_from_slice(&address.octets()),
            Some(IpAddr::V6(address)) if len == 16 => new = address.octets(),
            _ => continue,
        }
        let old = &mut frame[place..place + len];
        header.replace(old, &new[..len], false);
        if is_covered {
            transport.replace(old, &new[..len], false);
        }
        old.copy_from_slice(&new[..len]);
    }
    if len == 4 {
        header.apply(frame, network + 10);
    }
    let sum = match headers.fragment {
        Fragment::Later => in_later_fragment(frame, &headers),
        Fragment::Whole | Fragment::First => TransportSum::of(&headers),
    };
    if let Some(sum) = sum {
        sum.change(frame, transport);
    }
}

/// The transport checksum, if it is in this later fragment: TCP's is if the first fragment has 8 or
/// 16 octets.
fn in_later_fragment(frame: &[u8], headers: &Headers) -> Option<TransportSum> {
    let at = headers.transport as usize;
    let offset = match headers.key.version {
        4 => usize::from(be16(frame, headers.network as usize + 6) & 0x1fff) * 8,
        // The fragment header (RFC 8200 section 4.5) is the last one before the fragment.
        _ => usize::from(be16(frame, at.checked_sub(6)?) & !7),
    };
    let (field, may_be_none) = TransportSum::field(headers)?;
    let place = at + field.checked_sub(offset)?;
    (place + 2 <= headers.end as usize).then_some(TransportSum { at: place, may_be_none })
}
